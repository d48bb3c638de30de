"""Notebooks, cells, runs and outputs for tests of the stores."""

from __future__ import annotations

import time

from quire.core.model import (
    LOCAL,
    Cell,
    CellId,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    OutputType,
    Principal,
    Run,
    RunId,
)
from quire.stores.sql import SqlStore


def new_notebook(name: str = "book", owner: Principal = LOCAL) -> Notebook:
    return Notebook(id=NotebookId(f"{owner}-{name}"), name=name, owner=owner, runtime="python", created_at=time.time())


def new_run(id_: str = "r1", **more: object) -> Run:
    given = {"cell": CellId(""), "count": 0, "source": "1", "author": "test", "started_at": 1.0, **more}
    return Run(id=RunId(id_), **given)  # type: ignore[arg-type]


async def add_notebook(store: SqlStore, *sources: str) -> tuple[Notebook, list[Cell]]:
    book = await store.notebooks.create_notebook(new_notebook())
    cells = [NewCell(source=source) for source in sources]
    return book, await store.notebooks.add_cells(book.id, cells, at=None, limit=100)


async def list_sources(store: SqlStore, book: Notebook) -> list[str]:
    cells = await store.notebooks.list_cells(book.id, 0, None)
    assert [cell.number for cell in cells] == list(range(len(cells)))
    return [cell.source for cell in cells]


def stream_output(text: str, name: str = "stdout") -> Output:
    return Output(type=OutputType.STREAM, name=name, bundle={"text/plain": text})


def displayed_output(text: str, id_: str) -> Output:
    return Output(type=OutputType.EXECUTE_RESULT, bundle={"text/plain": text}, display_id=id_)
