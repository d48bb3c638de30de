"""Notebooks, cells and journal in SQLite: one writer, readers beside it, everything committed before the answer."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.to_thread

from quire import platform_compat
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import (
    Cell,
    CellId,
    CellKind,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    Principal,
    Run,
    RunId,
)
from quire.stores import as_rows, wording
from quire.stores.capabilities import SqlCapabilities
from quire.stores.readers import InlineReader, SqliteReader
from quire.stores.schema import alone, migrate
from quire.stores.shares import SqlShares
from quire.stores.sqlite import rows, translated
from quire.stores.writer import SqliteWriter

_CELLS = """
    SELECT c.id, c.position, c.kind, c.source, c.version, c.metadata, c.attachments, c.behind,
           r.id AS run, r.count, r.source AS run_source, r.author, r.started_at, r.seconds, r.state, r.cause,
           r.value, r.outputs, r.imports, r.functions, r.cell AS run_cell, r.parent, r.stale
    FROM cells c LEFT JOIN runs r ON r.id = c.run
    WHERE c.notebook = ?
"""
_RESERVED_BYTES = 1 << 20  # of the disk, left by outputs of running cells for changes that a caller waits for
_OUTLINE = "SELECT id, cell, count, author, started_at, seconds, state, parent, stale FROM runs WHERE notebook = ?"
_ShownRows = Sequence[tuple[str, int, str]]


class SqlStore:
    def __init__(self, folder: Path) -> None:
        self._locks = folder / "locks"
        self._locks.mkdir(parents=True, exist_ok=True)
        self._held: dict[NotebookId, int] = {}
        path = folder / "quire.db"
        with alone(self._locks / "opening"):
            migrate(path)
            self._writer = SqliteWriter(path)
            self._reader = SqliteReader(path)
            self._inline = InlineReader(path)
        self.capabilities = SqlCapabilities(self._writer, self._reader, self._locks / "capabilities")
        self.shares = SqlShares(self._writer, self._reader)

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        def job(db: sqlite3.Connection) -> Notebook:
            counted = db.execute("SELECT count(*) FROM notebooks WHERE owner = ?", (notebook.owner,)).fetchone()[0]
            if 0 < limit <= counted:
                raise wording.too_many_notebooks(limit)
            try:
                db.execute(
                    "INSERT INTO notebooks (id, owner, name, runtime, created_at, metadata, policy,"
                    " origin, origin_run, root, document) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                    as_rows.made(notebook),
                )
            except sqlite3.IntegrityError:
                raise InvalidRequest(wording.name_taken(notebook.name)) from None
            return notebook

        return await self._writer.run_durable(job)

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None:
        found = self._inline.rows("SELECT * FROM notebooks WHERE owner = ? AND name = ?", owner, name)
        return as_rows.notebook(found[0]) if found else None

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        rows = await self._reader.rows("SELECT * FROM notebooks WHERE owner = ? ORDER BY created_at, name", owner)
        return [as_rows.notebook(row) for row in rows]

    async def update_notebook(self, notebook: Notebook) -> None:
        values = (json.dumps(notebook.metadata), notebook.mirror, as_rows.document(notebook), notebook.id)
        await self._writer.run_durable(
            lambda db: db.execute("UPDATE notebooks SET metadata = ?, mirror = ?, document = ? WHERE id = ?", values)
        )

    async def list_mirrored(self) -> list[Notebook]:
        return [as_rows.notebook(row) for row in await self._reader.rows("SELECT * FROM notebooks WHERE mirror != ''")]

    async def clear_notebook(self, notebook: NotebookId) -> None:
        def job(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM cells WHERE notebook = ?", (notebook,))
            db.execute("DELETE FROM runs WHERE notebook = ?", (notebook,))
            db.execute("UPDATE notebooks SET cells = 0, runs = 0 WHERE id = ?", (notebook,))

        await self._writer.run_durable(job)

    async def delete_notebook(self, notebook: NotebookId) -> None:
        def job(db: sqlite3.Connection) -> None:
            for table in ("cells", "runs", "shares"):
                db.execute(f"DELETE FROM {table} WHERE notebook = ?", (notebook,))  # noqa: S608 - named above
            db.execute("DELETE FROM notebooks WHERE id = ?", (notebook,))

        await self._writer.run_durable(job)
        self.release(notebook)

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        return await self._writer.run_durable(lambda db: _add(db, notebook, cells, at, limit))

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        by = "c.position" if isinstance(which, int) else "c.id"
        rows = await self._reader.rows(f"{_CELLS} AND {by} = ?", notebook, which)
        return as_rows.cell(rows[0]) if rows else None

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        end = start + limit if limit is not None else 2**62
        rows = await self._reader.rows(
            f"{_CELLS} AND c.position >= ? AND c.position < ? ORDER BY c.position", notebook, start, end
        )
        return [as_rows.cell(row) for row in rows]

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        def job(db: sqlite3.Connection) -> Cell:
            old = _find(db, notebook, cell)
            wording.check_version(old, expected)
            new = edit.of(old)
            db.execute(
                "UPDATE cells SET source = ?, kind = ?, metadata = ?, version = ? WHERE notebook = ? AND id = ?",
                (new.source, new.kind, json.dumps(new.metadata), new.version, notebook, cell),
            )
            if edit.changes(old):
                _fall_behind(db, notebook, old.number)
            return new

        return await self._writer.run_durable(job)

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        def job(db: sqlite3.Connection) -> Cell:
            old = _find(db, notebook, cell)
            last = _size(db, notebook) - 1
            if not 0 <= to <= last:
                raise InvalidRequest(wording.no_such_place(to, last))
            _shift(db, notebook, old.number + 1, None, -1)
            _shift(db, notebook, to, old.id, +1)
            db.execute("UPDATE cells SET position = ? WHERE notebook = ? AND id = ?", (to, notebook, cell))
            if old.kind is CellKind.CODE and to != old.number:
                _fall_behind(db, notebook, min(to, old.number))
            return _find(db, notebook, cell)

        return await self._writer.run_durable(job)

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        def job(db: sqlite3.Connection) -> None:
            old = _find(db, notebook, cell)
            db.execute("DELETE FROM cells WHERE notebook = ? AND id = ?", (notebook, cell))
            _shift(db, notebook, old.number + 1, None, -1)
            if old.run is not None:
                _fall_behind(db, notebook, old.number)
            db.execute("UPDATE notebooks SET cells = cells - 1 WHERE id = ?", (notebook,))

        await self._writer.run_durable(job)

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        query = "UPDATE runs SET outputs = '[]' WHERE id = (SELECT run FROM cells WHERE notebook = ? AND id = ?)"
        await self._writer.run_durable(lambda db: db.execute(query, (notebook, cell)))

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        def job(db: sqlite3.Connection) -> Cell:
            if isinstance(cell, NewCell):
                there = _append(db, notebook, cell, run, limit)
            else:
                there = _find(db, notebook, cell.id)
                count = _one(db, "UPDATE notebooks SET runs = runs + 1 WHERE id = ? RETURNING runs", notebook)[0]
                there = replace(there, run=replace(run, cell=there.id, count=count), behind=False)
                db.execute(
                    "UPDATE cells SET run = ?, behind = 0 WHERE notebook = ? AND id = ?", (run.id, notebook, cell.id)
                )
            assert there.run is not None
            _insert_run(db, notebook, there.run)
            return there

        return await self._writer.run(job)

    async def keep_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        def prepare() -> _ShownRows:
            prepared = [(run, place, as_rows.output(output)) for place, output in outputs.items()]
            self._check_space(sum(len(text) for _, _, text in prepared))
            return prepared

        prepared = await anyio.to_thread.run_sync(prepare)  # large outputs take their time
        await self._writer.run(lambda db: _keep(db, run, prepared, dropped))

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        await self._writer.run_durable(lambda db: _finish(db, run))

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        values = [(stale, run, notebook) for run, stale in marks.items()]
        await self._writer.run_durable(
            lambda db: db.executemany("UPDATE runs SET stale = ? WHERE id = ? AND notebook = ?", values)
        )

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        rows = await self._reader.rows(f"{_OUTLINE} AND id = ?", notebook, run)
        return as_rows.step(rows[0]) if rows else None

    async def outline(self, notebook: NotebookId) -> list[Run]:
        return [as_rows.step(row) for row in await self._reader.rows(f"{_OUTLINE} ORDER BY rowid", notebook)]

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        rows = await self._reader.rows(
            "SELECT *, id AS run, cell AS run_cell, source AS run_source FROM runs WHERE notebook = ? ORDER BY rowid",
            notebook,
        )
        return [as_rows.run(row) for row in rows]

    async def find_displayed(self, notebook: NotebookId, display_id: str) -> list[Run]:
        rows = await self._reader.rows(
            "SELECT *, id AS run, cell AS run_cell, source AS run_source FROM runs WHERE notebook = ?"
            " AND instr(outputs, ?)",
            notebook,
            as_rows.display_id(display_id),
        )
        return [as_rows.run(row) for row in rows]

    async def mark_unfinished(self) -> int:
        rows = await self._reader.rows(
            "SELECT *, id AS run, cell AS run_cell, source AS run_source FROM runs WHERE state = 'RUNNING'"
        )
        free = {row["notebook"] for row in rows if self.hold(NotebookId(row["notebook"]))}
        lost = [as_rows.run(row) for row in rows if row["notebook"] in free]

        def job(db: sqlite3.Connection) -> None:
            for run in lost:
                _finish(db, wording.unfinished(run, _shown(db, run)))

        if lost:
            await self._writer.run_durable(job)
        for notebook in free:
            self.release(NotebookId(notebook))
        return len(lost)

    def hold(self, notebook: NotebookId) -> bool:
        """By a file lock that the system lets go of when the process ends, however it ends."""
        if notebook in self._held:
            return True
        try:
            lock = os.open(self._locks / notebook, os.O_CREAT | os.O_RDWR | platform_compat.BYTES, 0o600)
        except OSError as error:
            raise OperationFailed(f"The data directory cannot be written: {error.strerror}.") from error
        if not platform_compat.try_lock(lock):
            os.close(lock)
            return False
        self._held[notebook] = lock
        return True

    def release(self, notebook: NotebookId) -> None:
        lock = self._held.pop(notebook, None)
        if lock is not None:
            os.close(lock)

    async def close(self) -> None:
        self._inline.close()
        await self._reader.close()
        await self._writer.close()
        for notebook in list(self._held):
            self.release(notebook)

    def _check_space(self, size: int) -> None:
        """Refuse outputs of a running cell on a nearly full disk: once the log cannot grow, nothing can be deleted."""
        if shutil.disk_usage(self._locks).free < 2 * size + _RESERVED_BYTES:  # twice: in the log and in the database
            raise translated(sqlite3.OperationalError("disk is nearly full"))


def _add(db: sqlite3.Connection, notebook: NotebookId, cells: list[NewCell], at: int | None, limit: int) -> list[Cell]:
    there = _size(db, notebook)
    if there + len(cells) > limit:
        raise wording.too_many_cells(there, limit)
    at = there if at is None else at
    if not 0 <= at <= there:
        raise InvalidRequest(wording.no_such_place(at, there))
    if at < there:
        _shift(db, notebook, at, None, len(cells))
        if any(new.kind is CellKind.CODE for new in cells):
            _fall_behind(db, notebook, at)
    added = []
    for number, new in enumerate(cells, at):
        taken = new.id and _one(db, "SELECT 1 FROM cells WHERE notebook = ? AND id = ?", notebook, new.id)
        id_ = new.id if new.id and not taken else CellId(secrets.token_hex(6))
        run = replace(new.run, cell=id_) if new.run is not None else None
        if run is not None:
            _insert_run(db, notebook, run)
        db.execute(
            "INSERT INTO cells (notebook, id, position, kind, source, run, metadata, attachments)"
            " VALUES (?,?,?,?,?,?,?,?)",
            (notebook, id_, number, new.kind, new.source, run and run.id, *as_rows.brought(new)),
        )
        added.append(wording.added(new, id_, number, run))
    db.execute("UPDATE notebooks SET cells = cells + ? WHERE id = ?", (len(cells), notebook))
    return added


def _fall_behind(db: sqlite3.Connection, notebook: NotebookId, start: int) -> None:
    """What cells from `start` on show is from before a change."""
    db.execute(
        "UPDATE cells SET behind = 1 WHERE notebook = ? AND position >= ? AND run IS NOT NULL", (notebook, start)
    )


def _append(db: sqlite3.Connection, notebook: NotebookId, new: NewCell, run: Run, limit: int) -> Cell:
    """A new last cell with its run, in as few statements as can be: every REPL line comes through here."""
    cells, count = _one(
        db,
        "UPDATE notebooks SET cells = cells + 1, runs = runs + 1 WHERE id = ? RETURNING cells, runs",
        notebook,
    )
    if cells > limit:
        raise wording.too_many_cells(cells - 1, limit)
    id_ = CellId(secrets.token_hex(6))
    db.execute(
        "INSERT INTO cells (notebook, id, position, kind, source, run) VALUES (?,?,?,?,?,?)",
        (notebook, id_, cells - 1, new.kind, new.source, run.id),
    )
    run = replace(run, cell=id_, count=count)
    return Cell(id=id_, number=cells - 1, kind=new.kind, source=new.source, run=run)


def _one(db: sqlite3.Connection, query: str, *values: Any) -> Any:
    return db.execute(query, values).fetchone()


def _shift(db: sqlite3.Connection, notebook: NotebookId, start: int, but: CellId | None, by: int) -> None:
    """Move every cell from `start` on, but one, by so many places."""
    db.execute(
        "UPDATE cells SET position = position + ? WHERE notebook = ? AND position >= ? AND id IS NOT ?",
        (by, notebook, start, but),
    )


def _size(db: sqlite3.Connection, notebook: NotebookId) -> int:
    size: int = _one(db, "SELECT cells FROM notebooks WHERE id = ?", notebook)[0]
    return size


def _find(db: sqlite3.Connection, notebook: NotebookId, cell: CellId) -> Cell:
    found = rows(db, f"{_CELLS} AND c.id = ?", notebook, cell)
    if not found:
        raise NotFound(wording.cell_gone(cell))
    return as_rows.cell(found[0])


def _insert_run(db: sqlite3.Connection, notebook: NotebookId, run: Run) -> None:
    db.execute(
        "INSERT INTO runs (id, notebook, cell, count, source, author, started_at, seconds, state, cause, value,"
        " outputs, imports, functions, parent) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            run.id,
            notebook,
            run.cell,
            run.count,
            run.source,
            run.author,
            run.started_at,
            *as_rows.ended(run),
            run.parent,
        ),
    )


def _keep(db: sqlite3.Connection, run: RunId, made: _ShownRows, dropped: range) -> None:
    if _one(db, "SELECT 1 FROM runs WHERE id = ? AND state = 'RUNNING'", run):
        db.execute("DELETE FROM shown WHERE run = ? AND place BETWEEN ? AND ?", (run, dropped.start, dropped.stop - 1))
        db.executemany("INSERT OR REPLACE INTO shown (run, place, output) VALUES (?,?,?)", made)


def _shown(db: sqlite3.Connection, run: Run) -> list[Output]:
    found = db.execute("SELECT output FROM shown WHERE run = ? ORDER BY place", (run.id,))
    return [as_rows.shown(output) for (output,) in found]


def _finish(db: sqlite3.Connection, run: Run) -> None:
    db.execute(
        "UPDATE runs SET seconds=?, state=?, cause=?, value=?, outputs=?, imports=?, functions=? WHERE id=?",
        (*as_rows.ended(run), run.id),
    )
    db.execute("DELETE FROM shown WHERE run = ?", (run.id,))
