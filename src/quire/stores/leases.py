"""Which server runs which notebook: a lock file for each notebook, and the epoch of its lease in SQLite."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import anyio

from quire import platform_compat
from quire.core.errors import OperationFailed
from quire.core.model import NotebookId
from quire.stores.writer import SqliteWriter

log = logging.getLogger(__name__)

_TAKE = """
    INSERT INTO leases (notebook, epoch) VALUES (?, 1)
    ON CONFLICT (notebook) DO UPDATE SET epoch = epoch + 1 RETURNING epoch
"""


class SqlLeases:
    """The system releases the lock file of a process that ends, however it ends."""

    def __init__(self, writer: SqliteWriter, folder: Path) -> None:
        self._writer = writer
        self._folder = folder
        self._held: dict[NotebookId, tuple[int, int]] = {}  # the open lock file and the epoch
        self._taking = anyio.Lock()  # else a second caller in this process finds the lock file locked, but no epoch

    async def hold(self, notebook: NotebookId) -> int | None:
        if notebook in self._held:
            return self._held[notebook][1]
        async with self._taking:
            if notebook not in self._held:
                lock = self._lock(notebook)
                if lock is None:
                    return None
                try:
                    self._held[notebook] = lock, await self._next_epoch(notebook)
                except BaseException:
                    os.close(lock)
                    raise
            return self._held[notebook][1]

    async def _next_epoch(self, notebook: NotebookId) -> int:
        try:
            return await self._writer.run(lambda db: int(db.execute(_TAKE, (notebook,)).fetchone()[0]))
        except OperationFailed as error:  # on a full disk notebooks can still be read
            log.warning("the lease of notebook %s was not recorded: %s", notebook, error)
            return 0

    def _lock(self, notebook: NotebookId) -> int | None:
        try:
            lock = os.open(self._folder / notebook, os.O_CREAT | os.O_RDWR | platform_compat.BYTES, 0o600)
        except OSError as error:
            raise OperationFailed(f"The data directory cannot be written: {error.strerror}.") from error
        if platform_compat.try_lock(lock):
            return lock
        os.close(lock)
        return None

    async def release(self, notebook: NotebookId) -> None:
        lock, _ = self._held.pop(notebook, (None, 0))
        if lock is not None:
            os.close(lock)

    async def close(self) -> None:
        """Release all leases."""
        for notebook in list(self._held):
            await self.release(notebook)
