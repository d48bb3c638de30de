"""Opening the SQLite database: older and newer schemas, and files that are no database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from quire.core.errors import OperationFailed
from quire.core.model import (
    LOCAL,
    CellId,
    CellState,
    Notebook,
    NotebookId,
    Output,
    OutputType,
    RunId,
)
from quire.stores import sql
from quire.stores.sql import SqlStore
from tests.support.stored_notebooks import (
    new_run,
)


async def test_database_of_the_first_schema_keeps_its_rows(tmp_path: Path) -> None:

    first = (Path(sql.__file__).parent / "migrations" / "0001_house.sql").read_text("utf-8")
    output = '[{"type": "stream", "bundle": {"text/plain": "old"}, "metadata": {}, "name": "stdout", "result": false}]'
    database = sqlite3.connect(tmp_path / "quire.db")
    database.executescript(first)
    database.execute("PRAGMA user_version = 1")
    database.execute("INSERT INTO notebooks VALUES ('n1', 'local', 'old', 'python', 5.0, 3, 1, '{\"a\": 1}')")
    database.execute("INSERT INTO cells VALUES ('n1', 'c1', 0, 'code', 'print(1)', 2, 'r1', '{\"tags\": []}')")
    database.execute(
        "INSERT INTO runs VALUES ('r1', 'n1', 'c1', 3, 'print(0)', 'agent', 6.0, 0.5, 'SUCCESS', 'why', '[7]', ?,"
        " '[\"import os\"]', '[]')",
        (output,),
    )
    database.commit()
    database.close()
    expected = new_run(
        cell=CellId("c1"), count=3, source="print(0)", author="agent", started_at=6.0, seconds=0.5,
        state=CellState.SUCCESS, cause="why", value=[7], imports=("import os",),
        outputs=(Output(type=OutputType.STREAM, bundle={"text/plain": "old"}, name="stdout"),),
    )  # fmt: skip
    for _ in range(2):  # the second time there is nothing left to do
        store = SqlStore(tmp_path)
        book = await store.notebooks.find_notebook(LOCAL, "old")
        assert book == Notebook(
            id=NotebookId("n1"), name="old", owner=LOCAL, runtime="python", created_at=5.0, runs=3, cells=1,
            metadata={"a": 1},
        )  # fmt: skip
        cell = await store.notebooks.find_cell(book.id, 0)
        assert cell is not None and (cell.id, cell.version, cell.metadata) == ("c1", 2, {"tags": []})
        assert cell.run == expected and await store.runs.list_runs(book.id) == [expected]
        await store.close()
    store = SqlStore(tmp_path)
    begun = await store.runs.begin_run(book.id, cell, new_run("r2", parent=RunId("r1")), limit=9)
    assert begun.run is not None and (begun.run.count, begun.run.parent) == (4, "r1")
    await store.runs.mark_stale(book.id, {RunId("r1"): True})
    assert [run.stale for run in await store.runs.list_runs(book.id)] == [True, False]
    await store.close()


def test_database_of_a_newer_quire_is_refused(tmp_path: Path) -> None:

    from quire.core.errors import OperationFailed

    with sqlite3.connect(tmp_path / "quire.db") as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(OperationFailed, match="newer Quire"):
        SqlStore(tmp_path)


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:

    (tmp_path / "quire.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(OperationFailed, match=r"damaged|cannot be opened"):
        SqlStore(tmp_path)
