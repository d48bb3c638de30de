"""What survives a run, a crash or a rollback, and a restart: every row of the first table in docs/survival.md."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator

import pytest

import quire
from quire.frontends.python import Quire
from tests.support.notebooks import Book
from tests.support.servers import text
from tests.support.survival_table import ROWS, Row


def _tried(row: Row) -> bool:
    return not row.needs or importlib.util.find_spec(row.needs) is not None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
async def test_what_survives_a_run_and_what_survives_a_restore(book: Book, row: Row) -> None:
    if not _tried(row):
        pytest.skip(f"{row.needs} is not installed")
    made = await book.run(row.setup, timeout=120)
    assert not made.is_error, text(made)
    ran = await book.run(f"bool({row.check})", timeout=60)
    assert ran.structured_content["return_value"] is True, text(ran)

    await book.ask("rollback", to=0)
    crashed = await book.run(f"{row.during}\nimport os; os._exit(7)")
    assert crashed.structured_content["state"] == "CRASHED", text(crashed)
    for _ in range(2):  # restored twice from one checkpoint: the first use must not spoil it
        restored = await book.run(f"bool({row.check})", timeout=60 if row.survives else 3)
        held = restored.structured_content["return_value"] is True
        assert held is row.survives, text(restored)
        again = await book.ask("rollback", to=0)
        assert not again.is_error, text(again)


@pytest.fixture(scope="module")
async def restarted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Quire]:
    """A notebook for each row, set up by one Quire, in another."""
    folder = tmp_path_factory.mktemp("restarted") / "data"
    async with quire.open(folder, kernel_preload="", server_shutdown_stall_seconds=60) as first:
        for row in filter(_tried, ROWS):
            made = await (await first.notebook(row.what)).add_cell(row.setup, timeout=120)
            assert made.state == "SUCCESS", await made.text()
    async with quire.open(folder, kernel_preload="") as second:
        yield second


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
async def test_what_survives_a_restart(restarted: Quire, row: Row) -> None:
    if not _tried(row):
        pytest.skip(f"{row.needs} is not installed")
    checked = await (await restarted.notebook(row.what)).add_cell(f"bool({row.check})", timeout=60)
    if row.survives_restart:
        assert await checked.text() == "True"
    else:
        assert row.says and row.says in await checked.text()
