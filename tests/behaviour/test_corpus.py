"""The reference corpus gives what nbclient with ipykernel gives, in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from quire import compose
from quire.core.app import App
from quire.settings import load
from tests import corpus
from tests.support import ipykernel_reference

SAMPLE = {"last_expression", "display_updates", "errors", "history_variables", "magics_basic", "streams"}
"""Short notebooks that CI runs."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BlockingPortal, App]]:
    """One Quire for all notebooks, on a loop of its own."""
    settings = load({"store_data_dir": tmp_path_factory.mktemp("corpus")}, environ={})
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(compose.app(settings)) as app:
        yield portal, app


@pytest.fixture(scope="session")
def pool() -> Iterator[ThreadPoolExecutor]:
    """Where ipykernel runs a notebook while Quire does."""
    with ThreadPoolExecutor(1) as running:
        yield running


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak(sample=name in SAMPLE)) for name in corpus.NAMES]
)
def test_a_notebook_gives_what_ipykernel_gives(
    name: str, server: tuple[BlockingPortal, App], pool: ThreadPoolExecutor
) -> None:
    portal, app = server
    cells = corpus.read(name)
    reference = pool.submit(ipykernel_reference.through_ipykernel, cells)
    ours = portal.call(ipykernel_reference.through_quire, app, name, cells)
    found = ipykernel_reference.differences(cells, reference.result(), ours)
    if found:  # ipykernel itself may hear what a child process wrote only after its cell: it is given time for that
        found = ipykernel_reference.differences(
            cells, ipykernel_reference.through_ipykernel(cells, patiently=True), ours
        )
    assert not found, "\n".join(["", *found])


def test_the_sample_is_of_the_corpus() -> None:
    assert set(corpus.NAMES) >= SAMPLE


def test_the_corpus_is_forty_notebooks_and_says_why_where_it_may_differ() -> None:
    assert len(corpus.NAMES) >= 40
    cells = [cell for name in corpus.NAMES for cell in corpus.read(name)]
    assert sum(1 for cell in cells if cell.differs) <= len(cells) / 30
