"""The SQLite database of a data directory: opened once, with a part for each port."""

from __future__ import annotations

from pathlib import Path

from quire.stores.capabilities import SqlCapabilities
from quire.stores.leases import SqlLeases
from quire.stores.notebooks import SqlNotebooks
from quire.stores.readers import InlineReader, SqliteReader
from quire.stores.runs import SqlRuns
from quire.stores.schema import migrate, open_alone
from quire.stores.shares import SqlShares
from quire.stores.writer import SqliteWriter


class SqlStore:
    """One writer, and readers beside it. A change is committed before the method that makes it returns."""

    def __init__(self, folder: Path) -> None:
        """Raises OperationFailed if the database cannot be opened."""
        locks = folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        path = folder / "quire.db"
        with open_alone(locks / "opening"):
            migrate(path)
            self._writer = SqliteWriter(path)
            self._reader = SqliteReader(path)
            self._inline = InlineReader(path)
        self.leases = SqlLeases(self._writer, locks)
        self.notebooks = SqlNotebooks(self._writer, self._reader, self._inline, self.leases)
        self.runs = SqlRuns(self._writer, self._reader, self.leases, folder)
        self.shares = SqlShares(self._writer, self._reader)
        self.capabilities = SqlCapabilities(self._writer, self._reader, locks / "capabilities")

    async def close(self) -> None:
        self._inline.close()
        await self._reader.close()
        await self._writer.close()
        await self.leases.close()
