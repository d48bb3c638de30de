"""What survives a run, and what survives a restore: every row of the table in docs/limitations.md."""

from __future__ import annotations

import importlib.util

import pytest

from tests.conftest import text
from tests.faults.conftest import Book
from tests.survival import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
async def test_what_survives_a_run_and_what_survives_a_restore(book: Book, row: Row) -> None:
    if row.needs and importlib.util.find_spec(row.needs) is None:
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
