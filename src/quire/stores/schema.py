"""Migrations of a database: numbered SQL files, applied in order by one process at a time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from quire import platform_compat
from quire.core.errors import OperationFailed
from quire.stores.sqlite import connect

_MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(path: Path, migrations: Path = _MIGRATIONS) -> None:
    """Apply the migrations that are missing. Raises OperationFailed if the database is damaged or of a newer Quire."""
    steps = sorted(migrations.glob("*.sql"))
    try:
        db = connect(path)
    except sqlite3.Error as error:
        raise OperationFailed(f"The data directory's database cannot be opened: {path} ({error}).") from error
    try:
        db.execute("BEGIN IMMEDIATE")
        done = db.execute("PRAGMA user_version").fetchone()[0]
        if done > len(steps):
            raise OperationFailed(
                f"{path} was written by a newer Quire (schema {done}, this one knows {len(steps)}). Upgrade."
            )
        for number, step in enumerate(steps[done:], done + 1):
            for statement in _statements(step.read_text("utf-8")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise OperationFailed(f"The data directory's database is damaged or not ours: {path} ({error}).") from error
    finally:
        db.close()


@contextlib.contextmanager
def open_alone(path: Path) -> Iterator[None]:
    """Lock out other processes: SQLite does not wait while another one opens a new database or closes it, it fails."""
    with path.open("wb") as lock:
        platform_compat.lock(lock.fileno())
        yield


def _statements(script: str) -> list[str]:
    # executescript would commit the transaction of the migration
    statements, rest = [], ""
    for line in script.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            statements.append(rest)
            rest = ""
    return statements
