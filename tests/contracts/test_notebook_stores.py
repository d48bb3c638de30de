"""One suite for every NotebookStore."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from quire.core.errors import InvalidRequest, NotFound, VersionConflict
from quire.core.model import (
    LOCAL,
    Cell,
    CellId,
    CellKind,
    CellState,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Origin,
    Policy,
    Principal,
    RunId,
)
from quire.stores.sql import SqlStore
from tests.support.stored_notebooks import (
    add_notebook,
    list_sources,
    new_notebook,
    new_run,
)


async def test_notebook_is_found_by_owner_and_name(store: SqlStore) -> None:
    await store.notebooks.create_notebook(new_notebook("mine"))
    await store.notebooks.create_notebook(new_notebook("mine", Principal("another")))
    found = await store.notebooks.find_notebook(LOCAL, "mine")
    assert found is not None and found.owner == LOCAL
    assert await store.notebooks.find_notebook(LOCAL, "other") is None
    assert [book.name for book in await store.notebooks.list_notebooks(LOCAL)] == ["mine"]


async def test_second_notebook_of_a_name_is_refused(store: SqlStore) -> None:
    await store.notebooks.create_notebook(new_notebook())
    with pytest.raises(InvalidRequest, match="already"):
        await store.notebooks.create_notebook(new_notebook())


async def test_policy_and_origin_of_a_notebook_are_kept(store: SqlStore) -> None:
    policy = Policy(
        isolation="cell", on_error="rollback", python="venv", memory=2**40, cpu=1.5, processes=0, output=10_000
    )
    origin = Origin(notebook=NotebookId("first"), run=RunId("r9"), root=NotebookId("root"))
    for name, given in (
        ("all", {"policy": policy, "origin": origin}),
        ("of the start", {"origin": replace(origin, run=None)}),
        ("none", {}),
    ):
        made = replace(new_notebook(name), **given)  # type: ignore[arg-type]
        assert await store.notebooks.create_notebook(made) == made
        assert await store.notebooks.find_notebook(LOCAL, name) == made
    found = {book.name: book for book in await store.notebooks.list_notebooks(LOCAL)}
    assert (found["all"].policy, found["all"].origin) == (policy, origin)
    assert found["of the start"].origin == replace(origin, run=None)
    assert (found["none"].policy, found["none"].origin) == (Policy(), None)


async def test_cells_are_numbered_without_gaps_after_every_change(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b", "c", "d")
    await store.notebooks.add_cells(book.id, [NewCell(source="x"), NewCell(source="y")], at=1, limit=100)
    assert await list_sources(store, book) == ["a", "x", "y", "b", "c", "d"]
    await store.notebooks.delete_cell(book.id, cells[1].id)
    assert await list_sources(store, book) == ["a", "x", "y", "c", "d"]
    await store.notebooks.move_cell(book.id, cells[3].id, 0)
    assert await list_sources(store, book) == ["d", "a", "x", "y", "c"]
    await store.notebooks.move_cell(book.id, cells[3].id, 4)
    assert await list_sources(store, book) == ["a", "x", "y", "c", "d"]
    found = await store.notebooks.find_notebook(LOCAL, "book")
    assert found is not None and found.cells == 5


async def test_place_past_the_end_is_refused_and_nothing_changes(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    for place in (-1, 3):
        with pytest.raises(InvalidRequest, match="no place"):
            await store.notebooks.add_cells(book.id, [NewCell(source="x")], at=place, limit=100)
        with pytest.raises(InvalidRequest, match="no place"):
            await store.notebooks.move_cell(book.id, cells[0].id, place)
    assert await list_sources(store, book) == ["a"]


async def test_cells_over_the_limit_are_refused_all_together(store: SqlStore) -> None:
    book, _ = await add_notebook(store, "a", "b")
    with pytest.raises(InvalidRequest, match="max_cells"):
        await store.notebooks.add_cells(book.id, [NewCell(source="c"), NewCell(source="d")], at=None, limit=3)
    with pytest.raises(InvalidRequest, match="max_cells"):
        await store.runs.begin_run(book.id, NewCell(source="c"), new_run(), limit=2)
    assert await list_sources(store, book) == ["a", "b"]
    found = await store.notebooks.find_notebook(LOCAL, "book")
    assert found is not None and (found.cells, found.runs) == (2, 0)


async def test_cell_is_found_by_id_and_by_number(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b")
    assert await store.notebooks.find_cell(book.id, 1) == cells[1]
    assert await store.notebooks.find_cell(book.id, cells[0].id) == cells[0]
    for nothing in (2, -1, CellId("nothing")):
        assert await store.notebooks.find_cell(book.id, nothing) is None


async def test_cells_are_listed_in_pages(store: SqlStore) -> None:
    book, _ = await add_notebook(store, *"abcdef")
    assert [cell.source for cell in await store.notebooks.list_cells(book.id, 2, 3)] == ["c", "d", "e"]
    assert await store.notebooks.list_cells(book.id, 9, 3) == []


async def test_edit_of_an_old_version_is_refused_with_the_new_source(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    assert (await store.notebooks.edit_cell(book.id, cells[0].id, Edit(source="b"), None)).version == 2
    assert (await store.notebooks.edit_cell(book.id, cells[0].id, Edit(source="c"), 2)).version == 3
    with pytest.raises(VersionConflict, match=r"(?s)version 3.*\nc"):
        await store.notebooks.edit_cell(book.id, cells[0].id, Edit(source="d"), 2)
    assert await list_sources(store, book) == ["c"]


async def test_edit_merges_metadata_and_none_removes_a_key(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    await store.notebooks.edit_cell(book.id, cells[0].id, Edit(metadata={"tags": ["x"], "deep": {"a": [1]}}), None)
    edited = await store.notebooks.edit_cell(book.id, cells[0].id, Edit(kind=TEXT, metadata={"deep": None, "n": 0}), 2)
    assert (edited.kind, edited.metadata, edited.source, edited.version) == (TEXT, {"tags": ["x"], "n": 0}, "a", 3)
    assert await store.notebooks.find_cell(book.id, 0) == edited and not edited.stale


async def test_changes_of_a_deleted_cell_raise_not_found(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    await store.notebooks.delete_cell(book.id, cells[0].id)
    for change in (
        store.notebooks.delete_cell(book.id, cells[0].id),
        store.notebooks.edit_cell(book.id, cells[0].id, Edit(source="b"), None),
        store.notebooks.move_cell(book.id, cells[0].id, 0),
        store.runs.begin_run(book.id, cells[0], new_run(), limit=9),
    ):
        with pytest.raises(NotFound, match="no longer"):
            await change


async def test_run_of_an_imported_cell_is_not_counted(store: SqlStore) -> None:
    book = await store.notebooks.create_notebook(new_notebook())
    new = NewCell(
        source="a", kind=CellKind.CODE, run=new_run(count=7, state=CellState.SUCCESS), metadata={"tags": ["x"]}
    )
    cell = (await store.notebooks.add_cells(book.id, [new], at=None, limit=9))[0]
    found = await store.notebooks.find_cell(book.id, 0)
    assert found == cell and found.metadata == {"tags": ["x"]} and found.run is not None and found.run.count == 7
    begun = await store.runs.begin_run(book.id, cell, new_run("r2"), limit=9)
    assert begun.run is not None and begun.run.count == 1  # that run was another kernel's


async def test_clear_deletes_cells_and_runs(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b")
    await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    await store.notebooks.clear_notebook(book.id)
    assert await list_sources(store, book) == [] and await store.runs.list_runs(book.id) == []
    found = await store.notebooks.find_notebook(LOCAL, "book")
    assert found is not None and (found.cells, found.runs) == (0, 0)


async def test_deleted_notebook_is_gone_and_its_name_is_free(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b")
    await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    assert await store.leases.hold(book.id)
    await store.notebooks.delete_notebook(book.id)
    assert await store.notebooks.find_notebook(LOCAL, "book") is None
    await store.notebooks.delete_notebook(book.id)  # twice is once
    again = await store.notebooks.create_notebook(replace(new_notebook(), id=NotebookId("another")), limit=1)
    assert await list_sources(store, again) == [] and again.cells == 0


async def test_concurrent_changes_lose_nothing(store: SqlStore) -> None:

    book = await store.notebooks.create_notebook(new_notebook())

    async def add(number: int) -> None:
        await store.notebooks.add_cells(book.id, [NewCell(source=str(number))], at=None, limit=1000)

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(add, number)
    assert sorted(map(int, await list_sources(store, book))) == list(range(200))


async def ran(store: SqlStore, *kinds: CellKind) -> tuple[Notebook, list[Cell]]:
    """A notebook of these cells, of which the code has run."""
    book = await store.notebooks.create_notebook(new_notebook())
    cells = await store.notebooks.add_cells(
        book.id, [NewCell(source="x", kind=kind) for kind in kinds], at=None, limit=99
    )
    for cell in cells:
        if cell.kind is CellKind.CODE:
            await again(store, book, cell)
    return book, cells


async def again(store: SqlStore, book: Notebook, cell: Cell) -> None:
    begun = await store.runs.begin_run(book.id, cell, new_run(f"r{time.monotonic_ns()}"), limit=99)
    assert begun.run is not None
    await store.runs.finish_run(book.id, replace(begun.run, state=CellState.SUCCESS))


async def behind(store: SqlStore, book: Notebook) -> list[int]:
    return [cell.number for cell in await store.notebooks.list_cells(book.id, 0, None) if cell.stale]


CODE, TEXT = CellKind.CODE, CellKind.MARKDOWN


async def test_code_after_a_change_is_behind_until_it_runs_again(store: SqlStore) -> None:
    book, cells = await ran(store, CODE, CODE, TEXT, CODE)
    assert await behind(store, book) == []
    await store.notebooks.edit_cell(book.id, cells[1].id, Edit(source="y"), None)
    assert await behind(store, book) == [1, 3]
    await again(store, book, cells[1])
    assert await behind(store, book) == [3]
    await again(store, book, cells[3])
    assert await behind(store, book) == []
    await store.notebooks.move_cell(book.id, cells[0].id, 1)
    assert await behind(store, book) == [0, 1, 3]
    await store.notebooks.delete_cell(book.id, cells[0].id)
    await store.notebooks.add_cells(book.id, [NewCell(source="new")], at=None, limit=99)
    assert await behind(store, book) == [0, 2]  # the last one, which never ran, is not


async def test_changed_text_marks_no_code_behind(store: SqlStore) -> None:
    book, cells = await ran(store, TEXT, CODE, TEXT, CODE)
    await store.notebooks.edit_cell(book.id, cells[0].id, Edit(source="other words"), None)
    await store.notebooks.edit_cell(book.id, cells[1].id, Edit(metadata={"tags": ["x"]}), None)
    await store.notebooks.move_cell(book.id, cells[2].id, 0)
    await store.notebooks.delete_cell(book.id, cells[2].id)
    assert await behind(store, book) == []
    await store.notebooks.add_cells(book.id, [NewCell(source="words", kind=TEXT)], at=0, limit=99)
    assert await behind(store, book) == []


async def test_reopened_store_has_all_cells(open_store: Callable[[], SqlStore]) -> None:
    first = open_store()
    book, _ = await add_notebook(first, "a", "b")
    await first.close()
    second = open_store()
    assert await list_sources(second, book) == ["a", "b"]
    await second.close()
