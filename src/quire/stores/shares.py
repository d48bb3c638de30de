"""The port Shares in SQLite."""

from __future__ import annotations

import sqlite3

from quire.core.model import Notebook, NotebookId, Principal
from quire.core.notebooks.access import Access
from quire.stores import row_mapping
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
    def __init__(self, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._writer = writer
        self._reader = reader

    async def set_access(self, notebook: NotebookId, principal: Principal, access: Access | None) -> None:
        def job(db: sqlite3.Connection) -> None:
            if access is None:
                db.execute(_DROP, (notebook, principal))
            else:
                db.execute(_PUT, (notebook, principal, access))

        await self._writer.run_durable(job)

    async def list_access(self, notebook: NotebookId) -> dict[Principal, Access]:
        found = await self._reader.rows(_OF, notebook)
        return {Principal(row["principal"]): Access(row["access"]) for row in found}

    async def list_shared_with(self, principal: Principal) -> list[tuple[Notebook, Access]]:
        found = await self._reader.rows(_WITH, principal)
        return [(row_mapping.notebook_from_row(row), Access(row["access"])) for row in found]
