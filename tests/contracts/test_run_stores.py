"""One suite for every RunStore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from quire.core.model import (
    Blob,
    CellState,
    NewCell,
    Output,
    OutputType,
    RunId,
)
from quire.stores.sql import SqlStore
from tests.support.stored_notebooks import (
    add_notebook,
    displayed_output,
    new_notebook,
    new_run,
    stream_output,
)


async def test_run_is_recorded_from_its_start_and_shown_on_its_cell(store: SqlStore) -> None:
    book, _ = await add_notebook(store, "a")
    begun = await store.runs.begin_run(book.id, NewCell(source="b"), new_run(source="b"), limit=9)
    assert begun.number == 1 and begun.state is CellState.RUNNING and begun.run is not None
    assert begun.run.count == 1 and begun.run.cell == begun.id
    output = Output(
        type=OutputType.IMAGE,
        bundle={"image/png": Blob(digest="d", size=1), "text/plain": "é\ud800".encode("utf-8", "replace").decode()},
        metadata={"width": 3},
        result=True,
    )
    ended = new_run(
        cell=begun.id, count=1, source="b", state=CellState.SUCCESS, seconds=0.5, value=[{"a": 1}],
        outputs=(output,), imports=("import os",), functions=("def f(): pass",),
    )  # fmt: skip
    await store.runs.finish_run(book.id, ended)
    shown = await store.notebooks.find_cell(book.id, 1)
    assert shown is not None and shown.run == ended
    assert await store.runs.list_runs(book.id) == [ended]


async def test_second_run_of_a_cell_keeps_the_first(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    await store.runs.begin_run(book.id, cells[0], new_run("r1"), limit=9)
    again = await store.runs.begin_run(book.id, cells[0], new_run("r2"), limit=9)
    assert again.run is not None and again.run.count == 2
    assert [run.id for run in await store.runs.list_runs(book.id)] == ["r1", "r2"]


async def test_run_of_a_deleted_cell_is_recorded(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    begun = await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    await store.notebooks.delete_cell(book.id, cells[0].id)
    assert begun.run is not None
    await store.runs.finish_run(book.id, new_run(cell=cells[0].id, count=1, state=CellState.ERROR))
    assert [run.state for run in await store.runs.list_runs(book.id)] == [CellState.ERROR]


async def test_parent_of_a_run_is_recorded(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    await store.runs.begin_run(book.id, cells[0], new_run("r1"), limit=9)
    begun = await store.runs.begin_run(book.id, NewCell(source="b"), new_run("r2", parent=RunId("r1")), limit=9)
    assert begun.run is not None and begun.run.parent == "r1"
    await store.runs.finish_run(book.id, replace(begun.run, state=CellState.SUCCESS))
    new = NewCell(source="c", run=new_run("r3", parent=RunId("r2"), state=CellState.SUCCESS))
    await store.notebooks.add_cells(book.id, [new], at=None, limit=9)
    assert [run.parent for run in await store.runs.list_runs(book.id)] == [None, "r1", "r2"]
    shown = [cell.run for cell in await store.notebooks.list_cells(book.id, 0, None)]
    assert [run and run.parent for run in shown] == [None, "r1", "r2"]


async def test_stale_marks_are_set_and_removed(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b")
    ended = []
    for id_, cell in (("r1", cells[0]), ("r2", cells[1]), ("r3", cells[1])):
        begun = await store.runs.begin_run(book.id, cell, new_run(id_), limit=9)
        assert begun.run is not None and begun.run.stale is False
        ended.append(replace(begun.run, state=CellState.SUCCESS, seconds=0.5, value=[id_]))
        await store.runs.finish_run(book.id, ended[-1])
    await store.runs.mark_stale(book.id, {RunId("r1"): False, RunId("r2"): True, RunId("r3"): True})
    marked = [replace(run, stale=stale) for run, stale in zip(ended, (False, True, True), strict=True)]
    assert await store.runs.list_runs(book.id) == marked
    assert [cell.run for cell in await store.notebooks.list_cells(book.id, 0, None)] == [marked[0], marked[2]]
    await store.runs.mark_stale(book.id, {RunId("r2"): False, RunId("r3"): False, RunId("nothing"): True})
    assert await store.runs.list_runs(book.id) == ended
    await store.runs.mark_stale(book.id, {})
    found = await store.notebooks.find_cell(book.id, 1)
    assert found is not None and found.run == ended[2]


async def test_stale_marks_are_set_in_one_notebook_only(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    other = await store.notebooks.create_notebook(new_notebook("other"))
    await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    await store.runs.mark_stale(other.id, {RunId("r1"): True})
    assert [run.stale for run in await store.runs.list_runs(book.id)] == [False]


async def test_unfinished_run_is_marked_as_interrupted(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    assert await store.runs.mark_interrupted_runs() == 1
    assert await store.runs.mark_interrupted_runs() == 0
    found = await store.notebooks.find_cell(book.id, 0)
    assert found is not None and found.state is CellState.INTERRUPTED
    assert "server ended" in str(found.outputs[-1].bundle["text/plain"])


async def test_run_of_another_live_server_is_not_marked(open_store: Callable[[], SqlStore]) -> None:
    one, two = open_store(), open_store()
    book, cells = await add_notebook(one, "a")
    assert await one.leases.hold(book.id)
    await one.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    assert await two.runs.mark_interrupted_runs() == 0
    await one.close()
    assert await two.runs.mark_interrupted_runs() == 1
    await two.close()


async def test_outputs_of_an_unfinished_run_are_kept_in_order(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    begun = await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    picture = Output(type=OutputType.IMAGE, bundle={"image/png": Blob(digest="d", size=1)}, metadata={"width": 3})
    await store.runs.save_outputs(
        book.id, RunId("r1"), {0: stream_output("one "), 3: picture, 1: stream_output("half of tw")}, range(0)
    )
    await store.runs.save_outputs(
        book.id,
        RunId("r1"),
        {1: stream_output("two"), 2: stream_output("!", "stderr"), 4: stream_output("late")},
        range(0),
    )
    assert await store.notebooks.find_cell(book.id, 0) == begun  # while it runs, its server knows best
    assert await store.runs.mark_interrupted_runs() == 1
    found = await store.notebooks.find_cell(book.id, 0)
    assert found is not None and found.state is CellState.INTERRUPTED
    assert found.outputs[:-1] == (
        stream_output("one two"),
        stream_output("!", "stderr"),
        picture,
        stream_output("late"),
    )
    assert "what it had shown until shortly before is kept" in str(found.outputs[-1].bundle["text/plain"])
    assert await store.runs.list_runs(book.id) == [found.run]


async def test_dropped_outputs_of_an_unfinished_run_are_deleted(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b")
    for number, id_ in enumerate(("r1", "r2")):
        await store.runs.begin_run(book.id, cells[number], new_run(id_), limit=9)
        await store.runs.save_outputs(book.id, RunId(id_), {n: stream_output(f"{n} ") for n in range(10)}, range(0))
    await store.runs.save_outputs(
        book.id, RunId("r1"), {2: stream_output("... "), 10: stream_output("10")}, range(3, 9)
    )
    await store.runs.mark_interrupted_runs()
    shown = [cell.outputs[0].bundle["text/plain"] for cell in await store.notebooks.list_cells(book.id, 0, None)]
    assert shown == ["0 1 ... 9 10", "0 1 2 3 4 5 6 7 8 9 "]


async def test_cleared_outputs_of_an_unfinished_run_are_deleted(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    await store.runs.save_outputs(
        book.id, RunId("r1"), {0: stream_output("old"), 1: displayed_output("old", "x")}, range(0)
    )
    await store.runs.save_outputs(book.id, RunId("r1"), {2: stream_output("new")}, range(2))
    await store.runs.mark_interrupted_runs()
    found = await store.notebooks.find_cell(book.id, 0)
    assert found is not None and found.outputs[:-1] == (stream_output("new"),)


async def test_late_outputs_do_not_change_a_run_that_ended(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a", "b")
    begun = await store.runs.begin_run(book.id, cells[0], new_run(), limit=9)
    assert begun.run is not None
    await store.runs.save_outputs(book.id, RunId("r1"), {0: stream_output("so far")}, range(0))
    ended = replace(begun.run, state=CellState.SUCCESS, outputs=(stream_output("all"),))
    await store.runs.finish_run(book.id, ended)
    await store.runs.begin_run(book.id, cells[1], new_run("r2"), limit=9)
    await store.runs.save_outputs(book.id, RunId("r2"), {0: stream_output("cleared")}, range(0))
    for late in ("r1", "never"):
        await store.runs.save_outputs(book.id, RunId(late), {0: stream_output("late")}, range(0))
    assert (await store.runs.list_runs(book.id))[0] == ended
    await store.notebooks.clear_notebook(book.id)
    await store.runs.save_outputs(book.id, RunId("r2"), {0: stream_output("late")}, range(0))
    again = await store.runs.begin_run(book.id, NewCell(source="c"), new_run("r2"), limit=9)
    assert await store.runs.mark_interrupted_runs() == 1
    found = await store.notebooks.find_cell(book.id, again.id)
    assert found is not None and "nothing it may have shown is kept" in str(found.outputs[0].bundle["text/plain"])
    assert len(found.outputs) == 1


IDS = ("a", "a%", "a_", 'a"b', "a\\b", "é☃", "display_id", "A", "' OR 1=1 --", "*")


async def test_runs_are_found_by_exact_display_id(store: SqlStore) -> None:
    book, cells = await add_notebook(store, *IDS)
    for number, id_ in enumerate(IDS):
        begun = await store.runs.begin_run(book.id, cells[number], new_run(f"r{number}"), limit=99)
        assert begun.run is not None
        shown = (stream_output(f'"display_id": "{id_}"'), displayed_output(str(number), id_))
        await store.runs.finish_run(book.id, replace(begun.run, state=CellState.SUCCESS, outputs=shown))
    for number, id_ in enumerate(IDS):
        assert [run.id for run in await store.runs.find_runs_by_display_id(book.id, id_)] == [f"r{number}"], id_
    assert await store.runs.find_runs_by_display_id(book.id, "none") == []


async def test_display_ids_are_looked_up_in_one_notebook_only(store: SqlStore) -> None:
    book, cells = await add_notebook(store, "a")
    other = await store.notebooks.create_notebook(new_notebook("other"))
    begun = await store.runs.begin_run(book.id, cells[0], new_run("r1"), limit=9)
    assert begun.run is not None
    ended = replace(
        begun.run, state=CellState.SUCCESS, outputs=(displayed_output("1", "x"), displayed_output("2", "x"))
    )
    await store.runs.finish_run(book.id, ended)
    assert await store.runs.find_runs_by_display_id(other.id, "x") == []
    assert await store.runs.find_runs_by_display_id(book.id, "x") == [ended]
    await store.runs.finish_run(book.id, replace(ended, outputs=(displayed_output("new", "x"),)))
    found = await store.notebooks.find_cell(book.id, 0)
    assert found is not None and found.outputs == (displayed_output("new", "x"),)
