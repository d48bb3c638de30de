"""The port NotebookStore in SQLite."""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import replace

from quire.core.errors import InvalidRequest
from quire.core.model import Cell, CellId, CellKind, Edit, NewCell, Notebook, NotebookId, Principal
from quire.core.ports.store import Leases
from quire.stores import refusals, row_mapping
from quire.stores.readers import InlineReader, SqliteReader
from quire.stores.statements import CELLS, fetch_one, find_cell, insert_run
from quire.stores.writer import SqliteWriter

_INSERT_NOTEBOOK = """
    INSERT INTO notebooks (id, owner, name, runtime, created_at, metadata, policy, origin, origin_run, root, document)
    VALUES (?,?,?,?,?,?,?,?,?,?,?)
"""
_INSERT_CELL = """
    INSERT INTO cells (notebook, id, position, kind, source, run, metadata, attachments) VALUES (?,?,?,?,?,?,?,?)
"""


class SqlNotebooks:
    def __init__(self, writer: SqliteWriter, reader: SqliteReader, inline: InlineReader, leases: Leases) -> None:
        self._writer = writer
        self._reader = reader
        self._inline = inline
        self._leases = leases

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        def job(db: sqlite3.Connection) -> Notebook:
            count = fetch_one(db, "SELECT count(*) FROM notebooks WHERE owner = ?", notebook.owner)[0]
            if 0 < limit <= count:
                raise refusals.too_many_notebooks(limit)
            try:
                db.execute(_INSERT_NOTEBOOK, row_mapping.notebook_to_row(notebook))
            except sqlite3.IntegrityError:
                raise InvalidRequest(refusals.name_taken(notebook.name)) from None
            return notebook

        return await self._writer.run_durable(job)

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None:
        found = self._inline.rows("SELECT * FROM notebooks WHERE owner = ? AND name = ?", owner, name)
        return row_mapping.notebook_from_row(found[0]) if found else None

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        rows = await self._reader.rows("SELECT * FROM notebooks WHERE owner = ? ORDER BY created_at, name", owner)
        return [row_mapping.notebook_from_row(row) for row in rows]

    async def list_mirrored(self) -> list[Notebook]:
        rows = await self._reader.rows("SELECT * FROM notebooks WHERE mirror != ''")
        return [row_mapping.notebook_from_row(row) for row in rows]

    async def update_notebook(self, notebook: Notebook) -> None:
        values = (json.dumps(notebook.metadata), notebook.mirror, row_mapping.document_to_text(notebook), notebook.id)
        await self._writer.run_durable(
            lambda db: db.execute("UPDATE notebooks SET metadata = ?, mirror = ?, document = ? WHERE id = ?", values)
        )

    async def clear_notebook(self, notebook: NotebookId) -> None:
        def job(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM cells WHERE notebook = ?", (notebook,))
            db.execute("DELETE FROM runs WHERE notebook = ?", (notebook,))
            db.execute("UPDATE notebooks SET cells = 0, runs = 0 WHERE id = ?", (notebook,))

        await self._writer.run_durable(job)

    async def delete_notebook(self, notebook: NotebookId) -> None:
        def job(db: sqlite3.Connection) -> None:
            for table in ("cells", "runs", "shares", "leases"):
                db.execute(f"DELETE FROM {table} WHERE notebook = ?", (notebook,))  # noqa: S608 - named above
            db.execute("DELETE FROM notebooks WHERE id = ?", (notebook,))

        await self._writer.run_durable(job)
        await self._leases.release(notebook)

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        return await self._writer.run_durable(lambda db: _add_cells(db, notebook, cells, at, limit))

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        column = "c.position" if isinstance(which, int) else "c.id"
        rows = await self._reader.rows(f"{CELLS} AND {column} = ?", notebook, which)
        return row_mapping.cell_from_row(rows[0]) if rows else None

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        end = start + limit if limit is not None else 2**62
        query = f"{CELLS} AND c.position >= ? AND c.position < ? ORDER BY c.position"
        return [row_mapping.cell_from_row(row) for row in await self._reader.rows(query, notebook, start, end)]

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        def job(db: sqlite3.Connection) -> Cell:
            old = find_cell(db, notebook, cell)
            refusals.check_version(old, expected)
            new = edit.of(old)
            db.execute(
                "UPDATE cells SET source = ?, kind = ?, metadata = ?, version = ? WHERE notebook = ? AND id = ?",
                (new.source, new.kind, json.dumps(new.metadata), new.version, notebook, cell),
            )
            if edit.changes(old):
                _mark_behind(db, notebook, old.number)
            return new

        return await self._writer.run_durable(job)

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        def job(db: sqlite3.Connection) -> Cell:
            old = find_cell(db, notebook, cell)
            last = _count_cells(db, notebook) - 1
            if not 0 <= to <= last:
                raise InvalidRequest(refusals.no_such_place(to, last))
            _shift_cells(db, notebook, old.number + 1, -1)
            _shift_cells(db, notebook, to, +1, skipped=old.id)
            db.execute("UPDATE cells SET position = ? WHERE notebook = ? AND id = ?", (to, notebook, cell))
            if old.kind is CellKind.CODE and to != old.number:
                _mark_behind(db, notebook, min(to, old.number))
            return find_cell(db, notebook, cell)

        return await self._writer.run_durable(job)

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        def job(db: sqlite3.Connection) -> None:
            old = find_cell(db, notebook, cell)
            db.execute("DELETE FROM cells WHERE notebook = ? AND id = ?", (notebook, cell))
            _shift_cells(db, notebook, old.number + 1, -1)
            if old.run is not None:
                _mark_behind(db, notebook, old.number)
            db.execute("UPDATE notebooks SET cells = cells - 1 WHERE id = ?", (notebook,))

        await self._writer.run_durable(job)


def _add_cells(
    db: sqlite3.Connection, notebook: NotebookId, cells: list[NewCell], at: int | None, limit: int
) -> list[Cell]:
    count = _count_cells(db, notebook)
    if count + len(cells) > limit:
        raise refusals.too_many_cells(count, limit)
    at = count if at is None else at
    if not 0 <= at <= count:
        raise InvalidRequest(refusals.no_such_place(at, count))
    if at < count:
        _shift_cells(db, notebook, at, len(cells))
        if any(new.kind is CellKind.CODE for new in cells):
            _mark_behind(db, notebook, at)
    added = [_insert_cell(db, notebook, new, number) for number, new in enumerate(cells, at)]
    db.execute("UPDATE notebooks SET cells = cells + ? WHERE id = ?", (len(cells), notebook))
    return added


def _insert_cell(db: sqlite3.Connection, notebook: NotebookId, new: NewCell, number: int) -> Cell:
    is_taken = new.id and fetch_one(db, "SELECT 1 FROM cells WHERE notebook = ? AND id = ?", notebook, new.id)
    id_ = new.id if new.id and not is_taken else CellId(secrets.token_hex(6))
    run = replace(new.run, cell=id_) if new.run is not None else None
    if run is not None:
        insert_run(db, notebook, run)
    place = (notebook, id_, number)
    db.execute(_INSERT_CELL, (*place, new.kind, new.source, run and run.id, *row_mapping.extras_to_row(new)))
    return new.to_cell(id_, number, run)


def _mark_behind(db: sqlite3.Connection, notebook: NotebookId, start: int) -> None:
    """Mark the cells from `start` on that have run: their outputs are from before a change."""
    db.execute(
        "UPDATE cells SET behind = 1 WHERE notebook = ? AND position >= ? AND run IS NOT NULL", (notebook, start)
    )


def _shift_cells(
    db: sqlite3.Connection, notebook: NotebookId, start: int, by: int, *, skipped: CellId | None = None
) -> None:
    """Move the cells from `start` on by `by` places, except for `skipped`."""
    db.execute(
        "UPDATE cells SET position = position + ? WHERE notebook = ? AND position >= ? AND id IS NOT ?",
        (by, notebook, start, skipped),
    )


def _count_cells(db: sqlite3.Connection, notebook: NotebookId) -> int:
    return int(fetch_one(db, "SELECT cells FROM notebooks WHERE id = ?", notebook)[0])
