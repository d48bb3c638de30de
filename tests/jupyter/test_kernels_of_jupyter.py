"""Every behaviour of a Jupyter server's kernels, from outside and from inside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jupyter import kernel_behaviours
from tests.support.jupyter.places import behaviours, inside_of, tried
from tests.support.jupyter.servers import JupyterServer, jupyter

WAYS = {"remote": {"base_url": "/user/ann/"}, "inside": inside_of({})}


@pytest.fixture(scope="module", params=WAYS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    with jupyter(tmp_path_factory.mktemp(request.param), **WAYS[request.param]) as server:
        yield server


@pytest.mark.parametrize("behaviour", behaviours(kernel_behaviours.__name__))
async def test_kernel(served: JupyterServer, behaviour: str) -> None:
    await tried(served, getattr(kernel_behaviours, behaviour))
