"""SQLite connections: how they are opened, and SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from quire.core.errors import OperationFailed

_BUSY_TIMEOUT_S = 10.0  # for a transaction of another process


def connect(path: Path) -> sqlite3.Connection:
    """Open the database. A commit returns when the disk has it, not only the system's memory."""
    database = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("SELECT 1 FROM sqlite_schema").fetchone()  # opens the file now, not at the first use
    return database


def rows(database: sqlite3.Connection, query: str, *values: Any) -> list[sqlite3.Row]:
    cursor = database.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(query, values).fetchall()


def translated(error: BaseException) -> BaseException:
    """Return an SQLite error as one of ours, any other as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return OperationFailed(
            f"The disk is full or failing ({text}): this change was not kept, earlier cells are intact. "
            "Free some space and call again."
        )
    if "locked" in text:
        return OperationFailed(f"The data directory is busy ({text}): this change was not kept. Call again.")
    return OperationFailed(f"The store failed ({text}): this change was not kept.")
