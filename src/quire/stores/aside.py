"""A way to SQLite for what nobody waits for: a connection of its own, off the event loop, without fsync.

It locks the database for moments only, so commits that somebody waits for hardly meet it, and what
does not fit on the disk fails alone. What it wrote survives the end of any process at once, and a power failure as
soon as something after it is acknowledged.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from quire.stores.lane import connect, translated

T = TypeVar("T")


class Aside:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None  # opened at the first use: most runs need none
        self._turn = asyncio.Lock()

    async def do(self, prepare: Callable[[], T], work: Callable[[sqlite3.Connection, T], None]) -> None:
        """All of `work` or nothing, on what `prepare` made before the database is locked."""
        async with self._turn:
            await anyio.to_thread.run_sync(self._do, prepare, work)

    async def close(self) -> None:
        async with self._turn:
            if self._database is not None:
                self._database.close()

    def _do(self, prepare: Callable[[], T], work: Callable[[sqlite3.Connection, T], None]) -> None:
        try:
            if self._database is None:
                self._database = connect(self._path)
                self._database.execute("PRAGMA synchronous = NORMAL")
                self._database.execute("PRAGMA cache_size = -256")  # kilobytes: it writes, and never looks again
            prepared = prepare()
            self._database.execute("BEGIN IMMEDIATE")
            work(self._database, prepared)
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database is not None and self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise translated(error) from error
