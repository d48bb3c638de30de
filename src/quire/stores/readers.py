"""Readers of SQLite, with connections of their own. In WAL mode they read while the writer writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from quire.stores.sqlite import connect, rows, translated

T = TypeVar("T")


class SqliteReader:
    """Reads on a thread of its own, for queries of any size."""

    def __init__(self, path: Path) -> None:
        self._database = connect(path)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quire-sql-reader")

    async def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, read)

    async def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return await self.run(lambda database: rows(database, query, *values))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        self._database.close()

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return read(self._database)
        except sqlite3.Error as error:
            raise translated(error) from error


class InlineReader:
    """Reads a row or a few on the caller's thread: faster than handing a small query to another thread."""

    def __init__(self, path: Path) -> None:
        self._database = connect(path)

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return rows(self._database, query, *values)
        except sqlite3.Error as error:
            raise translated(error) from error

    def close(self) -> None:
        self._database.close()
