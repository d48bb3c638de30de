"""Every behaviour of documents, from outside and from inside, with collaboration and without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jupyter import document_behaviours, live_behaviours
from tests.support.jupyter.places import behaviours, inside_of, tried
from tests.support.jupyter.servers import JupyterServer, jupyter

WAYS = {
    "remote": {},
    "plain": {"collaboration": False},
    "inside": inside_of({}),
    "inside-plain": inside_of({"collaboration": False}),
}


@pytest.fixture(scope="module", params=WAYS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    with jupyter(tmp_path_factory.mktemp(request.param), **WAYS[request.param]) as server:
        yield server


@pytest.mark.parametrize("behaviour", behaviours(document_behaviours.__name__))
async def test_document(served: JupyterServer, behaviour: str) -> None:
    await tried(served, getattr(document_behaviours, behaviour))


@pytest.mark.parametrize("served", ["remote", "inside"], indirect=True)
@pytest.mark.parametrize("behaviour", behaviours(live_behaviours.__name__))
async def test_live_document(served: JupyterServer, behaviour: str) -> None:
    await tried(served, getattr(live_behaviours, behaviour))
