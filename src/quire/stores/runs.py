"""The port RunStore in SQLite."""

from __future__ import annotations

import itertools
import secrets
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from quire.core.model import Cell, CellId, CellState, NewCell, NotebookId, Output, OutputType, Run, RunId
from quire.core.ports.store import Leases
from quire.core.runs import transcript
from quire.stores import refusals, row_mapping
from quire.stores.readers import SqliteReader
from quire.stores.sqlite import translated
from quire.stores.statements import fetch_one, find_cell, insert_run
from quire.stores.writer import SqliteWriter

_RESERVED_BYTES = 1 << 20  # of the disk, left by outputs of running cells for changes that a caller waits for
_RUNS = "SELECT *, id AS run, cell AS run_cell, source AS run_source FROM runs"
_SUMMARIES = """
    SELECT id AS run, cell AS run_cell, count, '' AS run_source, author, started_at, seconds, state, parent, stale,
           '' AS cause, '[]' AS value, '[]' AS outputs, '[]' AS imports, '[]' AS functions
    FROM runs WHERE notebook = ?
"""
_OutputRows = Sequence[tuple[str, int, str]]


class SqlRuns:
    def __init__(self, writer: SqliteWriter, reader: SqliteReader, leases: Leases, folder: Path) -> None:
        """`folder` is on the disk that has the database."""
        self._writer = writer
        self._reader = reader
        self._leases = leases
        self._folder = folder

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        def job(db: sqlite3.Connection) -> Cell:
            if isinstance(cell, NewCell):
                begun = _append_cell(db, notebook, cell, run, limit)
            else:
                begun = find_cell(db, notebook, cell.id)
                count = fetch_one(db, "UPDATE notebooks SET runs = runs + 1 WHERE id = ? RETURNING runs", notebook)[0]
                begun = replace(begun, run=replace(run, cell=begun.id, count=count), behind=False)
                db.execute(
                    "UPDATE cells SET run = ?, behind = 0 WHERE notebook = ? AND id = ?", (run.id, notebook, cell.id)
                )
            assert begun.run is not None
            insert_run(db, notebook, begun.run)
            return begun

        return await self._writer.run(job)

    async def save_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        def prepare() -> _OutputRows:
            prepared = [(run, place, row_mapping.output_to_text(output)) for place, output in outputs.items()]
            self._check_space(sum(len(text) for _, _, text in prepared))
            return prepared

        prepared = await anyio.to_thread.run_sync(prepare)  # large outputs would block the event loop
        await self._writer.run(lambda db: _save_outputs(db, run, prepared, dropped))

    def _check_space(self, size: int) -> None:
        """Refuse outputs of a running cell on a nearly full disk: once the log cannot grow, nothing can be deleted."""
        if shutil.disk_usage(self._folder).free < 2 * size + _RESERVED_BYTES:  # twice: in the log and in the database
            raise translated(sqlite3.OperationalError("disk is nearly full"))

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        await self._writer.run_durable(lambda db: _finish(db, run))

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        query = "UPDATE runs SET outputs = '[]' WHERE id = (SELECT run FROM cells WHERE notebook = ? AND id = ?)"
        await self._writer.run_durable(lambda db: db.execute(query, (notebook, cell)))

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        values = [(stale, run, notebook) for run, stale in marks.items()]
        await self._writer.run_durable(
            lambda db: db.executemany("UPDATE runs SET stale = ? WHERE id = ? AND notebook = ?", values)
        )

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        rows = await self._reader.rows(f"{_SUMMARIES} AND id = ?", notebook, run)
        return row_mapping.run_from_row(rows[0]) if rows else None

    async def list_run_summaries(self, notebook: NotebookId) -> list[Run]:
        rows = await self._reader.rows(f"{_SUMMARIES} ORDER BY rowid", notebook)
        return [row_mapping.run_from_row(row) for row in rows]

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        rows = await self._reader.rows(f"{_RUNS} WHERE notebook = ? ORDER BY rowid", notebook)
        return [row_mapping.run_from_row(row) for row in rows]

    async def find_runs_by_display_id(self, notebook: NotebookId, display_id: str) -> list[Run]:
        text = row_mapping.display_id_in_row(display_id)
        rows = await self._reader.rows(f"{_RUNS} WHERE notebook = ? AND instr(outputs, ?)", notebook, text)
        return [row_mapping.run_from_row(row) for row in rows]

    async def mark_interrupted_runs(self) -> int:
        rows = await self._reader.rows(f"{_RUNS} WHERE state = 'RUNNING'")
        notebooks = {NotebookId(row["notebook"]) for row in rows}
        held = {notebook for notebook in notebooks if await self._leases.hold(notebook) is not None}
        runs = [row_mapping.run_from_row(row) for row in rows if row["notebook"] in held]

        def job(db: sqlite3.Connection) -> None:
            for run in runs:
                _finish(db, _interrupted(run, _outputs_so_far(db, run)))

        if runs:
            await self._writer.run_durable(job)
        for notebook in held:
            await self._leases.release(notebook)
        return len(runs)


def _append_cell(db: sqlite3.Connection, notebook: NotebookId, new: NewCell, run: Run, limit: int) -> Cell:
    """Append a cell with its run, in as few statements as possible: each REPL call comes through here."""
    cells, count = fetch_one(
        db, "UPDATE notebooks SET cells = cells + 1, runs = runs + 1 WHERE id = ? RETURNING cells, runs", notebook
    )
    if cells > limit:
        raise refusals.too_many_cells(cells - 1, limit)
    id_ = CellId(secrets.token_hex(6))
    db.execute(
        "INSERT INTO cells (notebook, id, position, kind, source, run) VALUES (?,?,?,?,?,?)",
        (notebook, id_, cells - 1, new.kind, new.source, run.id),
    )
    run = replace(run, cell=id_, count=count)
    return Cell(id=id_, number=cells - 1, kind=new.kind, source=new.source, run=run)


def _save_outputs(db: sqlite3.Connection, run: RunId, outputs: _OutputRows, dropped: range) -> None:
    if fetch_one(db, "SELECT 1 FROM runs WHERE id = ? AND state = 'RUNNING'", run):
        db.execute("DELETE FROM shown WHERE run = ? AND place BETWEEN ? AND ?", (run, dropped.start, dropped.stop - 1))
        db.executemany("INSERT OR REPLACE INTO shown (run, place, output) VALUES (?,?,?)", outputs)


def _outputs_so_far(db: sqlite3.Connection, run: Run) -> list[Output]:
    found = db.execute("SELECT output FROM shown WHERE run = ? ORDER BY place", (run.id,))
    return [row_mapping.output_from_text(output) for (output,) in found]


def _finish(db: sqlite3.Connection, run: Run) -> None:
    db.execute(
        "UPDATE runs SET seconds=?, state=?, cause=?, value=?, outputs=?, imports=?, functions=? WHERE id=?",
        (*row_mapping.run_end_to_row(run), run.id),
    )
    db.execute("DELETE FROM shown WHERE run = ?", (run.id,))


def _interrupted(run: Run, outputs: list[Output]) -> Run:
    """Return a run whose server ended before it, with the outputs that were saved."""
    kept = "what it had shown until shortly before is kept" if outputs else "nothing it may have shown is kept"
    cause = f"The server ended while this cell ran; {kept}."
    return replace(
        run,
        state=CellState.INTERRUPTED,
        cause=cause,
        outputs=(*_join_streams(outputs), transcript.error_output("Interrupted", cause)),
    )


def _join_streams(outputs: list[Output]) -> list[Output]:
    """Make one output of neighbouring pieces of the same stream."""
    joined: list[Output] = []
    for (is_stream, name), pieces in itertools.groupby(outputs, lambda one: (one.type is OutputType.STREAM, one.name)):
        if is_stream:
            text = "".join(str(piece.bundle["text/plain"]) for piece in pieces)
            joined.append(Output(type=OutputType.STREAM, name=name, bundle={"text/plain": text}))
        else:
            joined += pieces
    return joined
