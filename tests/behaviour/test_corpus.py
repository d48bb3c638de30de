"""The reference corpus gives what nbclient with ipykernel gives, in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from quire import compose
from quire.core.app import App
from quire.settings import load
from tests import corpus
from tests.support import ipykernel_reference

_AT_ONCE = 2  # ipykernels

pytestmark = pytest.mark.timeout(300)  # a test may wait for the references of those before it


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BlockingPortal, App]]:
    """One Quire for all notebooks, on a loop of its own."""
    settings = load({"data_dir": tmp_path_factory.mktemp("corpus")}, environ={})
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(compose.app(settings)) as app:
        yield portal, app


@pytest.fixture(scope="session")
def references(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Any]]]:
    """What ipykernel makes of each notebook that is asked for, gathered ahead of the tests."""
    wanted = [item.callspec.params["name"] for item in request.session.items if _of_the_corpus(item)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {name: pool.submit(ipykernel_reference.through_ipykernel, corpus.read(name)) for name in wanted}
        pool.shutdown(cancel_futures=True)


def _of_the_corpus(item: Any) -> bool:
    return item.path.name == "test_corpus.py" and "name" in getattr(getattr(item, "callspec", None), "params", {})


@pytest.mark.parametrize("name", corpus.NAMES)
def test_a_notebook_gives_what_ipykernel_gives(
    name: str, server: tuple[BlockingPortal, App], references: dict[str, Future[Any]]
) -> None:
    portal, app = server
    cells = corpus.read(name)
    ours = portal.call(ipykernel_reference.through_quire, app, name, cells)
    found = ipykernel_reference.differences(cells, references[name].result(), ours)
    if found:  # ipykernel itself may hear what a child process wrote only after its cell: it is given time for that
        found = ipykernel_reference.differences(
            cells, ipykernel_reference.through_ipykernel(cells, patiently=True), ours
        )
    assert not found, "\n".join(["", *found])


def test_the_corpus_is_forty_notebooks_and_says_why_where_it_may_differ() -> None:
    assert len(corpus.NAMES) >= 40
    cells = [cell for name in corpus.NAMES for cell in corpus.read(name)]
    assert sum(1 for cell in cells if cell.differs) <= len(cells) / 30
