"""One suite for every Store and every Blobs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from quire.core.errors import InvalidRequest, NotFound, VersionConflict
from quire.core.model import (
    LOCAL,
    Blob,
    Cell,
    CellId,
    CellKind,
    CellState,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Origin,
    Output,
    OutputType,
    Policy,
    Principal,
    Run,
    RunId,
)
from quire.core.ports.store import Blobs, Store
from quire.stores.blobs import FileBlobs
from quire.stores.sql import SqlStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = SqlStore(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return FileBlobs(tmp_path / "blobs")


def a_notebook(name: str = "book", owner: Principal = LOCAL) -> Notebook:
    return Notebook(id=NotebookId(f"{owner}-{name}"), name=name, owner=owner, runtime="python", created_at=time.time())


def a_run(id_: str = "r1", **more: object) -> Run:
    given = {"cell": CellId(""), "count": 0, "source": "1", "author": "test", "started_at": 1.0, **more}
    return Run(id=RunId(id_), **given)  # type: ignore[arg-type]


async def filled(store: Store, *sources: str) -> tuple[Notebook, list[Cell]]:
    book = await store.create_notebook(a_notebook())
    cells = [NewCell(source=source) for source in sources]
    return book, await store.add_cells(book.id, cells, at=None, limit=100)


async def sources(store: Store, book: Notebook) -> list[str]:
    cells = await store.list_cells(book.id, 0, None)
    assert [cell.number for cell in cells] == list(range(len(cells)))
    return [cell.source for cell in cells]


async def test_a_notebook_is_found_by_owner_and_name(store: Store) -> None:
    await store.create_notebook(a_notebook("mine"))
    await store.create_notebook(a_notebook("mine", Principal("another")))
    found = await store.find_notebook(LOCAL, "mine")
    assert found is not None and found.owner == LOCAL
    assert await store.find_notebook(LOCAL, "other") is None
    assert [book.name for book in await store.list_notebooks(LOCAL)] == ["mine"]


async def test_a_name_is_given_once(store: Store) -> None:
    await store.create_notebook(a_notebook())
    with pytest.raises(InvalidRequest, match="already"):
        await store.create_notebook(a_notebook())


async def test_cells_are_numbered_without_gaps_whatever_happens(store: Store) -> None:
    book, cells = await filled(store, "a", "b", "c", "d")
    await store.add_cells(book.id, [NewCell(source="x"), NewCell(source="y")], at=1, limit=100)
    assert await sources(store, book) == ["a", "x", "y", "b", "c", "d"]
    await store.delete_cell(book.id, cells[1].id)
    assert await sources(store, book) == ["a", "x", "y", "c", "d"]
    await store.move_cell(book.id, cells[3].id, 0)
    assert await sources(store, book) == ["d", "a", "x", "y", "c"]
    await store.move_cell(book.id, cells[3].id, 4)
    assert await sources(store, book) == ["a", "x", "y", "c", "d"]
    found = await store.find_notebook(LOCAL, "book")
    assert found is not None and found.cells == 5


async def test_a_place_past_the_end_is_refused_and_nothing_changes(store: Store) -> None:
    book, cells = await filled(store, "a")
    for place in (-1, 3):
        with pytest.raises(InvalidRequest, match="no place"):
            await store.add_cells(book.id, [NewCell(source="x")], at=place, limit=100)
        with pytest.raises(InvalidRequest, match="no place"):
            await store.move_cell(book.id, cells[0].id, place)
    assert await sources(store, book) == ["a"]


async def test_the_limit_of_cells_holds_for_all_or_none(store: Store) -> None:
    book, _ = await filled(store, "a", "b")
    with pytest.raises(InvalidRequest, match="max_cells"):
        await store.add_cells(book.id, [NewCell(source="c"), NewCell(source="d")], at=None, limit=3)
    with pytest.raises(InvalidRequest, match="max_cells"):
        await store.begin_run(book.id, NewCell(source="c"), a_run(), limit=2)
    assert await sources(store, book) == ["a", "b"]
    found = await store.find_notebook(LOCAL, "book")
    assert found is not None and (found.cells, found.runs) == (2, 0)


async def test_a_cell_is_found_by_id_and_by_number(store: Store) -> None:
    book, cells = await filled(store, "a", "b")
    assert await store.find_cell(book.id, 1) == cells[1]
    assert await store.find_cell(book.id, cells[0].id) == cells[0]
    for nothing in (2, -1, CellId("nothing")):
        assert await store.find_cell(book.id, nothing) is None


async def test_a_page_of_cells(store: Store) -> None:
    book, _ = await filled(store, *"abcdef")
    assert [cell.source for cell in await store.list_cells(book.id, 2, 3)] == ["c", "d", "e"]
    assert await store.list_cells(book.id, 9, 3) == []


async def test_an_edit_counts_versions_and_a_stale_one_is_refused_with_the_newer_source(store: Store) -> None:
    book, cells = await filled(store, "a")
    assert (await store.edit_cell(book.id, cells[0].id, Edit(source="b"), None)).version == 2
    assert (await store.edit_cell(book.id, cells[0].id, Edit(source="c"), 2)).version == 3
    with pytest.raises(VersionConflict, match=r"(?s)version 3.*\nc"):
        await store.edit_cell(book.id, cells[0].id, Edit(source="d"), 2)
    assert await sources(store, book) == ["c"]


async def test_what_is_gone_is_not_found(store: Store) -> None:
    book, cells = await filled(store, "a")
    await store.delete_cell(book.id, cells[0].id)
    for change in (
        store.delete_cell(book.id, cells[0].id),
        store.edit_cell(book.id, cells[0].id, Edit(source="b"), None),
        store.move_cell(book.id, cells[0].id, 0),
        store.begin_run(book.id, cells[0], a_run(), limit=9),
    ):
        with pytest.raises(NotFound, match="no longer"):
            await change


async def test_a_run_is_journaled_from_its_start_and_shown_on_its_cell(store: Store) -> None:
    book, _ = await filled(store, "a")
    begun = await store.begin_run(book.id, NewCell(source="b"), a_run(source="b"), limit=9)
    assert begun.number == 1 and begun.state is CellState.RUNNING and begun.run is not None
    assert begun.run.count == 1 and begun.run.cell == begun.id
    output = Output(
        type=OutputType.IMAGE,
        bundle={"image/png": Blob(digest="d", size=1), "text/plain": "é\ud800".encode("utf-8", "replace").decode()},
        metadata={"width": 3},
        result=True,
    )
    ended = a_run(
        cell=begun.id, count=1, source="b", state=CellState.SUCCESS, seconds=0.5, value=[{"a": 1}],
        outputs=(output,), imports=("import os",), functions=("def f(): pass",),
    )  # fmt: skip
    await store.finish_run(book.id, ended)
    shown = await store.find_cell(book.id, 1)
    assert shown is not None and shown.run == ended
    assert await store.list_runs(book.id) == [ended]


async def test_running_a_cell_again_counts_on_and_keeps_both_runs(store: Store) -> None:
    book, cells = await filled(store, "a")
    await store.begin_run(book.id, cells[0], a_run("r1"), limit=9)
    again = await store.begin_run(book.id, cells[0], a_run("r2"), limit=9)
    assert again.run is not None and again.run.count == 2
    assert [run.id for run in await store.list_runs(book.id)] == ["r1", "r2"]


async def test_the_journal_outlives_the_cell(store: Store) -> None:
    book, cells = await filled(store, "a")
    begun = await store.begin_run(book.id, cells[0], a_run(), limit=9)
    await store.delete_cell(book.id, cells[0].id)
    assert begun.run is not None
    await store.finish_run(book.id, a_run(cell=cells[0].id, count=1, state=CellState.ERROR))
    assert [run.state for run in await store.list_runs(book.id)] == [CellState.ERROR]


async def test_a_cell_may_come_with_a_run(store: Store) -> None:
    book = await store.create_notebook(a_notebook())
    new = NewCell(source="a", kind=CellKind.CODE, run=a_run(count=7, state=CellState.SUCCESS), metadata={"tags": ["x"]})
    cell = (await store.add_cells(book.id, [new], at=None, limit=9))[0]
    found = await store.find_cell(book.id, 0)
    assert found == cell and found.metadata == {"tags": ["x"]} and found.run is not None and found.run.count == 7
    begun = await store.begin_run(book.id, cell, a_run("r2"), limit=9)
    assert begun.run is not None and begun.run.count == 1  # that run was another kernel's


async def test_clearing_leaves_an_empty_notebook(store: Store) -> None:
    book, cells = await filled(store, "a", "b")
    await store.begin_run(book.id, cells[0], a_run(), limit=9)
    await store.clear_notebook(book.id)
    assert await sources(store, book) == [] and await store.list_runs(book.id) == []
    found = await store.find_notebook(LOCAL, "book")
    assert found is not None and (found.cells, found.runs) == (0, 0)


async def test_a_deleted_notebook_is_gone_and_its_name_is_free(store: Store) -> None:
    book, cells = await filled(store, "a", "b")
    await store.begin_run(book.id, cells[0], a_run(), limit=9)
    assert store.hold(book.id)
    await store.delete_notebook(book.id)
    assert await store.find_notebook(LOCAL, "book") is None
    await store.delete_notebook(book.id)  # twice is once
    again = await store.create_notebook(replace(a_notebook(), id=NotebookId("another")), limit=1)
    assert await sources(store, again) == [] and again.cells == 0


async def test_an_unfinished_run_is_found_and_marked(store: Store) -> None:
    book, cells = await filled(store, "a")
    await store.begin_run(book.id, cells[0], a_run(), limit=9)
    assert await store.mark_unfinished() == 1
    assert await store.mark_unfinished() == 0
    found = await store.find_cell(book.id, 0)
    assert found is not None and found.state is CellState.INTERRUPTED
    assert "server ended" in str(found.outputs[-1].bundle["text/plain"])


def printed(text: str, name: str = "stdout") -> Output:
    return Output(type=OutputType.STREAM, name=name, bundle={"text/plain": text})


async def test_what_an_unfinished_run_had_shown_is_kept_in_its_order(store: Store) -> None:
    book, cells = await filled(store, "a")
    begun = await store.begin_run(book.id, cells[0], a_run(), limit=9)
    picture = Output(type=OutputType.IMAGE, bundle={"image/png": Blob(digest="d", size=1)}, metadata={"width": 3})
    await store.keep_outputs(book.id, RunId("r1"), {0: printed("one "), 3: picture, 1: printed("half of tw")}, range(0))
    await store.keep_outputs(
        book.id, RunId("r1"), {1: printed("two"), 2: printed("!", "stderr"), 4: printed("late")}, range(0)
    )
    assert await store.find_cell(book.id, 0) == begun  # while it runs, its server knows best
    assert await store.mark_unfinished() == 1
    found = await store.find_cell(book.id, 0)
    assert found is not None and found.state is CellState.INTERRUPTED
    assert found.outputs[:-1] == (printed("one two"), printed("!", "stderr"), picture, printed("late"))
    assert "what it had shown until shortly before is kept" in str(found.outputs[-1].bundle["text/plain"])
    assert await store.list_runs(book.id) == [found.run]


async def test_of_what_was_dropped_from_an_unfinished_run_nothing_is_kept(store: Store) -> None:
    book, cells = await filled(store, "a", "b")
    for number, id_ in enumerate(("r1", "r2")):
        await store.begin_run(book.id, cells[number], a_run(id_), limit=9)
        await store.keep_outputs(book.id, RunId(id_), {n: printed(f"{n} ") for n in range(10)}, range(0))
    await store.keep_outputs(book.id, RunId("r1"), {2: printed("... "), 10: printed("10")}, range(3, 9))
    await store.mark_unfinished()
    shown = [cell.outputs[0].bundle["text/plain"] for cell in await store.list_cells(book.id, 0, None)]
    assert shown == ["0 1 ... 9 10", "0 1 2 3 4 5 6 7 8 9 "]


async def test_a_run_that_has_ended_or_is_gone_stays_as_it_is_whatever_comes_late(store: Store) -> None:
    book, cells = await filled(store, "a", "b")
    begun = await store.begin_run(book.id, cells[0], a_run(), limit=9)
    assert begun.run is not None
    await store.keep_outputs(book.id, RunId("r1"), {0: printed("so far")}, range(0))
    ended = replace(begun.run, state=CellState.SUCCESS, outputs=(printed("all"),))
    await store.finish_run(book.id, ended)
    await store.begin_run(book.id, cells[1], a_run("r2"), limit=9)
    await store.keep_outputs(book.id, RunId("r2"), {0: printed("cleared")}, range(0))
    for late in ("r1", "never"):
        await store.keep_outputs(book.id, RunId(late), {0: printed("late")}, range(0))
    assert (await store.list_runs(book.id))[0] == ended
    await store.clear_notebook(book.id)
    await store.keep_outputs(book.id, RunId("r2"), {0: printed("late")}, range(0))
    again = await store.begin_run(book.id, NewCell(source="c"), a_run("r2"), limit=9)
    assert await store.mark_unfinished() == 1
    found = await store.find_cell(book.id, again.id)
    assert found is not None and "nothing it may have shown is kept" in str(found.outputs[0].bundle["text/plain"])
    assert len(found.outputs) == 1


async def test_many_at_once_lose_nothing(store: Store) -> None:
    import anyio

    book = await store.create_notebook(a_notebook())

    async def add(number: int) -> None:
        await store.add_cells(book.id, [NewCell(source=str(number))], at=None, limit=1000)

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(add, number)
    assert sorted(map(int, await sources(store, book))) == list(range(200))


async def test_bytes_come_back_and_equal_bytes_are_kept_once(blobs: Blobs) -> None:
    for data in (b"", b"\x00\xff" * 1000):
        blob = await blobs.put(data)
        assert await blobs.put(data) == blob and blob.size == len(data)
        assert await blobs.get(blob) == data


async def test_bytes_that_are_gone_are_not_found(blobs: Blobs) -> None:
    with pytest.raises(NotFound, match="Run the cell again"):
        await blobs.get(Blob(digest="0" * 64, size=1))


async def test_policy_and_origin_of_a_notebook_are_kept_as_they_were(store: Store) -> None:
    policy = Policy(
        isolation="cell", on_error="rollback", python="venv", memory=2**40, cpu=1.5, processes=0, output=10_000
    )
    origin = Origin(notebook=NotebookId("first"), run=RunId("r9"), root=NotebookId("root"))
    for name, given in (
        ("all", {"policy": policy, "origin": origin}),
        ("of the start", {"origin": replace(origin, run=None)}),
        ("none", {}),
    ):
        made = replace(a_notebook(name), **given)  # type: ignore[arg-type]
        assert await store.create_notebook(made) == made
        assert await store.find_notebook(LOCAL, name) == made
    found = {book.name: book for book in await store.list_notebooks(LOCAL)}
    assert (found["all"].policy, found["all"].origin) == (policy, origin)
    assert found["of the start"].origin == replace(origin, run=None)
    assert (found["none"].policy, found["none"].origin) == (Policy(), None)


async def test_the_run_a_run_began_with_is_journaled(store: Store) -> None:
    book, cells = await filled(store, "a")
    await store.begin_run(book.id, cells[0], a_run("r1"), limit=9)
    begun = await store.begin_run(book.id, NewCell(source="b"), a_run("r2", parent=RunId("r1")), limit=9)
    assert begun.run is not None and begun.run.parent == "r1"
    await store.finish_run(book.id, replace(begun.run, state=CellState.SUCCESS))
    new = NewCell(source="c", run=a_run("r3", parent=RunId("r2"), state=CellState.SUCCESS))
    await store.add_cells(book.id, [new], at=None, limit=9)
    assert [run.parent for run in await store.list_runs(book.id)] == [None, "r1", "r2"]
    shown = [cell.run for cell in await store.list_cells(book.id, 0, None)]
    assert [run and run.parent for run in shown] == [None, "r1", "r2"]


async def test_stale_marks_are_set_and_taken_away_and_change_nothing_else(store: Store) -> None:
    book, cells = await filled(store, "a", "b")
    ended = []
    for id_, cell in (("r1", cells[0]), ("r2", cells[1]), ("r3", cells[1])):
        begun = await store.begin_run(book.id, cell, a_run(id_), limit=9)
        assert begun.run is not None and begun.run.stale is False
        ended.append(replace(begun.run, state=CellState.SUCCESS, seconds=0.5, value=[id_]))
        await store.finish_run(book.id, ended[-1])
    await store.mark_stale(book.id, {RunId("r1"): False, RunId("r2"): True, RunId("r3"): True})
    marked = [replace(run, stale=stale) for run, stale in zip(ended, (False, True, True), strict=True)]
    assert await store.list_runs(book.id) == marked
    assert [cell.run for cell in await store.list_cells(book.id, 0, None)] == [marked[0], marked[2]]
    await store.mark_stale(book.id, {RunId("r2"): False, RunId("r3"): False, RunId("nothing"): True})
    assert await store.list_runs(book.id) == ended
    await store.mark_stale(book.id, {})
    found = await store.find_cell(book.id, 1)
    assert found is not None and found.run == ended[2]


async def test_stale_marks_are_of_one_notebooks_runs(store: Store) -> None:
    book, cells = await filled(store, "a")
    other = await store.create_notebook(a_notebook("other"))
    await store.begin_run(book.id, cells[0], a_run(), limit=9)
    await store.mark_stale(other.id, {RunId("r1"): True})
    assert [run.stale for run in await store.list_runs(book.id)] == [False]


# What only a store on disk can promise


async def test_a_database_of_the_first_schema_is_opened_and_keeps_its_rows(tmp_path: Path) -> None:
    import sqlite3

    from quire.stores import sql

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
    expected = a_run(
        cell=CellId("c1"), count=3, source="print(0)", author="agent", started_at=6.0, seconds=0.5,
        state=CellState.SUCCESS, cause="why", value=[7], imports=("import os",),
        outputs=(Output(type=OutputType.STREAM, bundle={"text/plain": "old"}, name="stdout"),),
    )  # fmt: skip
    for _ in range(2):  # the second time there is nothing left to do
        store = SqlStore(tmp_path)
        book = await store.find_notebook(LOCAL, "old")
        assert book == Notebook(
            id=NotebookId("n1"), name="old", owner=LOCAL, runtime="python", created_at=5.0, runs=3, cells=1,
            metadata={"a": 1},
        )  # fmt: skip
        cell = await store.find_cell(book.id, 0)
        assert cell is not None and (cell.id, cell.version, cell.metadata) == ("c1", 2, {"tags": []})
        assert cell.run == expected and await store.list_runs(book.id) == [expected]
        await store.close()
    store = SqlStore(tmp_path)
    begun = await store.begin_run(book.id, cell, a_run("r2", parent=RunId("r1")), limit=9)
    assert begun.run is not None and (begun.run.count, begun.run.parent) == (4, "r1")
    await store.mark_stale(book.id, {RunId("r1"): True})
    assert [run.stale for run in await store.list_runs(book.id)] == [True, False]
    await store.close()


async def test_what_was_kept_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    first = SqlStore(tmp_path)
    book, _ = await filled(first, "a", "b")
    await first.close()
    second = SqlStore(tmp_path)
    assert await sources(second, book) == ["a", "b"]
    await second.close()


async def test_a_notebook_is_held_by_one_store_at_a_time(tmp_path: Path) -> None:
    one, two = SqlStore(tmp_path), SqlStore(tmp_path)
    assert one.hold(NotebookId("n")) and one.hold(NotebookId("n"))
    assert not two.hold(NotebookId("n"))
    one.release(NotebookId("n"))
    assert two.hold(NotebookId("n"))
    await one.close()
    await two.close()


async def test_a_run_another_server_is_running_is_not_marked(tmp_path: Path) -> None:
    one, two = SqlStore(tmp_path), SqlStore(tmp_path)
    book, cells = await filled(one, "a")
    assert one.hold(book.id)
    await one.begin_run(book.id, cells[0], a_run(), limit=9)
    assert await two.mark_unfinished() == 0
    await one.close()
    assert await two.mark_unfinished() == 1
    await two.close()


async def test_damaged_bytes_are_said_to_be_damaged(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blob = await blobs.put(b"right")
    (tmp_path / blob.digest[:2] / blob.digest[2:]).write_bytes(b"wrong")
    with pytest.raises(NotFound, match="damaged"):
        await blobs.get(blob)


def test_a_database_of_a_newer_quire_is_refused(tmp_path: Path) -> None:
    import sqlite3

    from quire.core.errors import OperationFailed

    with sqlite3.connect(tmp_path / "quire.db") as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(OperationFailed, match="newer Quire"):
        SqlStore(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    from quire.core.errors import OperationFailed

    (tmp_path / "quire.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(OperationFailed, match=r"damaged|cannot be opened"):
        SqlStore(tmp_path)


def displayed(text: str, id_: str) -> Output:
    return Output(type=OutputType.EXECUTE_RESULT, bundle={"text/plain": text}, display_id=id_)


IDS = ("a", "a%", "a_", 'a"b', "a\\b", "é☃", "display_id", "A", "' OR 1=1 --", "*")


async def test_what_was_shown_under_an_id_is_found_by_that_id_alone(store: Store) -> None:
    book, cells = await filled(store, *IDS)
    for number, id_ in enumerate(IDS):
        begun = await store.begin_run(book.id, cells[number], a_run(f"r{number}"), limit=99)
        assert begun.run is not None
        shown = (printed(f'"display_id": "{id_}"'), displayed(str(number), id_))
        await store.finish_run(book.id, replace(begun.run, state=CellState.SUCCESS, outputs=shown))
    for number, id_ in enumerate(IDS):
        assert [run.id for run in await store.find_displayed(book.id, id_)] == [f"r{number}"], id_
    assert await store.find_displayed(book.id, "none") == []


async def test_what_was_shown_is_found_in_its_own_notebook_and_with_its_outputs(store: Store) -> None:
    book, cells = await filled(store, "a")
    other = await store.create_notebook(a_notebook("other"))
    begun = await store.begin_run(book.id, cells[0], a_run("r1"), limit=9)
    assert begun.run is not None
    ended = replace(begun.run, state=CellState.SUCCESS, outputs=(displayed("1", "x"), displayed("2", "x")))
    await store.finish_run(book.id, ended)
    assert await store.find_displayed(other.id, "x") == []
    assert await store.find_displayed(book.id, "x") == [ended]
    await store.finish_run(book.id, replace(ended, outputs=(displayed("new", "x"),)))
    found = await store.find_cell(book.id, 0)
    assert found is not None and found.outputs == (displayed("new", "x"),)


async def ran(store: Store, *kinds: CellKind) -> tuple[Notebook, list[Cell]]:
    """A notebook of these cells, of which the code has run."""
    book = await store.create_notebook(a_notebook())
    cells = await store.add_cells(book.id, [NewCell(source="x", kind=kind) for kind in kinds], at=None, limit=99)
    for cell in cells:
        if cell.kind is CellKind.CODE:
            await again(store, book, cell)
    return book, cells


async def again(store: Store, book: Notebook, cell: Cell) -> None:
    begun = await store.begin_run(book.id, cell, a_run(f"r{time.monotonic_ns()}"), limit=99)
    assert begun.run is not None
    await store.finish_run(book.id, replace(begun.run, state=CellState.SUCCESS))


async def behind(store: Store, book: Notebook) -> list[int]:
    return [cell.number for cell in await store.list_cells(book.id, 0, None) if cell.stale]


CODE, TEXT = CellKind.CODE, CellKind.MARKDOWN


async def test_code_after_a_change_falls_behind_until_it_runs_again(store: Store) -> None:
    book, cells = await ran(store, CODE, CODE, TEXT, CODE)
    assert await behind(store, book) == []
    await store.edit_cell(book.id, cells[1].id, Edit(source="y"), None)
    assert await behind(store, book) == [1, 3]
    await again(store, book, cells[1])
    assert await behind(store, book) == [3]
    await again(store, book, cells[3])
    assert await behind(store, book) == []
    await store.move_cell(book.id, cells[0].id, 1)
    assert await behind(store, book) == [0, 1, 3]
    await store.delete_cell(book.id, cells[0].id)
    await store.add_cells(book.id, [NewCell(source="new")], at=None, limit=99)
    assert await behind(store, book) == [0, 2]  # the last one, which never ran, is not


async def test_text_makes_no_code_fall_behind(store: Store) -> None:
    book, cells = await ran(store, TEXT, CODE, TEXT, CODE)
    await store.edit_cell(book.id, cells[0].id, Edit(source="other words"), None)
    await store.edit_cell(book.id, cells[1].id, Edit(metadata={"tags": ["x"]}), None)
    await store.move_cell(book.id, cells[2].id, 0)
    await store.delete_cell(book.id, cells[2].id)
    assert await behind(store, book) == []
    await store.add_cells(book.id, [NewCell(source="words", kind=TEXT)], at=0, limit=99)
    assert await behind(store, book) == []


async def test_an_edit_merges_metadata_and_none_takes_a_key_away(store: Store) -> None:
    book, cells = await filled(store, "a")
    await store.edit_cell(book.id, cells[0].id, Edit(metadata={"tags": ["x"], "deep": {"a": [1]}}), None)
    edited = await store.edit_cell(book.id, cells[0].id, Edit(kind=TEXT, metadata={"deep": None, "n": 0}), 2)
    assert (edited.kind, edited.metadata, edited.source, edited.version) == (TEXT, {"tags": ["x"], "n": 0}, "a", 3)
    assert await store.find_cell(book.id, 0) == edited and not edited.stale


async def test_what_was_cleared_from_an_unfinished_run_is_not_kept(store: Store) -> None:
    book, cells = await filled(store, "a")
    await store.begin_run(book.id, cells[0], a_run(), limit=9)
    await store.keep_outputs(book.id, RunId("r1"), {0: printed("old"), 1: displayed("old", "x")}, range(0))
    await store.keep_outputs(book.id, RunId("r1"), {2: printed("new")}, range(2))
    await store.mark_unfinished()
    found = await store.find_cell(book.id, 0)
    assert found is not None and found.outputs[:-1] == (printed("new"),)
