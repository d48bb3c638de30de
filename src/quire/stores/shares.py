"""Which notebooks are shared with whom, in SQLite."""

from __future__ import annotations

import sqlite3

from quire.core.model import Notebook, NotebookId, Principal
from quire.core.notebooks.access import Access
from quire.stores import as_rows
from quire.stores.readers import SqliteReader
from quire.stores.writer import SqliteWriter

_PUT = "INSERT OR REPLACE INTO shares (notebook, principal, access) VALUES (?,?,?)"
_DROP = "DELETE FROM shares WHERE notebook = ? AND principal = ?"
_OF = "SELECT principal, access FROM shares WHERE notebook = ? ORDER BY principal"
_WITH = """
    SELECT n.*, s.access FROM shares s JOIN notebooks n ON n.id = s.notebook
    WHERE s.principal = ? ORDER BY n.created_at, n.owner, n.name
"""


class SqlShares:
    """In the store's database, with its writer and its reader."""

    def __init__(self, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, notebook: NotebookId, whom: Principal, access: Access | None) -> None:
        def job(db: sqlite3.Connection) -> None:
            if access is None:
                db.execute(_DROP, (notebook, whom))
            else:
                db.execute(_PUT, (notebook, whom, access))

        await self._writer.run_durable(job)

    async def of(self, notebook: NotebookId) -> dict[Principal, Access]:
        found = await self._reader.rows(_OF, notebook)
        return {Principal(row["principal"]): Access(row["access"]) for row in found}

    async def shared_with(self, whom: Principal) -> list[tuple[Notebook, Access]]:
        found = await self._reader.rows(_WITH, whom)
        return [(as_rows.notebook(row), Access(row["access"])) for row in found]
