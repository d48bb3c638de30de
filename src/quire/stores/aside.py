"""A way to SQLite for what nobody waits for: a connection of its own, off the event loop, without fsync.

It locks the database for moments only, so commits that somebody waits for hardly meet it, and it leaves them
room on the disk: what it has written could not even be deleted where the log cannot grow. It survives the end
of any process at once, and a power failure as soon as something after it is acknowledged.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread

from quire.stores.lane import connect, translated

Rows = Sequence[tuple[str, int, str]]
_ROOM = 1 << 20  # bytes left on the disk for what somebody waits for


class Aside:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None  # opened at the first use: most runs need none
        self._turn = asyncio.Lock()

    async def do(self, prepare: Callable[[], Rows], work: Callable[[sqlite3.Connection, Rows], None]) -> None:
        """All of `work` or nothing, on the rows `prepare` made before the database is locked."""
        async with self._turn:
            await anyio.to_thread.run_sync(self._do, prepare, work)

    async def close(self) -> None:
        async with self._turn:
            if self._database is not None:
                self._database.close()

    def _do(self, prepare: Callable[[], Rows], work: Callable[[sqlite3.Connection, Rows], None]) -> None:
        try:
            if self._database is None:
                self._database = connect(self._path)
                self._database.execute("PRAGMA synchronous = NORMAL")
                self._database.execute("PRAGMA cache_size = -256")  # kilobytes: it writes, and never looks again
            rows = prepare()
            self._leave_room(sum(len(text) for _, _, text in rows))
            self._database.execute("BEGIN IMMEDIATE")
            work(self._database, rows)
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database is not None and self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise translated(error) from error

    def _leave_room(self, size: int) -> None:
        # twice: first in the log, then in the database
        if shutil.disk_usage(self._path.parent).free < 2 * size + _ROOM:
            raise sqlite3.OperationalError("disk is nearly full")
