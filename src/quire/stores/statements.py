"""SQL statements on cells and runs that notebooks.py and runs.py share."""

from __future__ import annotations

import sqlite3
from typing import Any

from quire.core.errors import NotFound
from quire.core.model import Cell, CellId, NotebookId, Run
from quire.stores import refusals, row_mapping
from quire.stores.sqlite import rows

CELLS = """
    SELECT c.id, c.position, c.kind, c.source, c.version, c.metadata, c.attachments, c.behind,
           r.id AS run, r.count, r.source AS run_source, r.author, r.started_at, r.seconds, r.state, r.cause,
           r.value, r.outputs, r.imports, r.functions, r.cell AS run_cell, r.parent, r.stale
    FROM cells c LEFT JOIN runs r ON r.id = c.run
    WHERE c.notebook = ?
"""
_INSERT_RUN = """
    INSERT INTO runs (id, notebook, cell, count, source, author, started_at, seconds, state, cause, value,
                      outputs, imports, functions, parent)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
"""


def fetch_one(db: sqlite3.Connection, query: str, *values: Any) -> Any:
    return db.execute(query, values).fetchone()


def find_cell(db: sqlite3.Connection, notebook: NotebookId, cell: CellId) -> Cell:
    """Raises NotFound."""
    found = rows(db, f"{CELLS} AND c.id = ?", notebook, cell)
    if not found:
        raise NotFound(refusals.cell_gone(cell))
    return row_mapping.cell_from_row(found[0])


def insert_run(db: sqlite3.Connection, notebook: NotebookId, run: Run) -> None:
    start = (run.id, notebook, run.cell, run.count, run.source, run.author, run.started_at)
    db.execute(_INSERT_RUN, (*start, *row_mapping.run_end_to_row(run), run.parent))
