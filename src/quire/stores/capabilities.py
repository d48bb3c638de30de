"""The port CapabilityStore in SQLite."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quire.core.capabilities.model import Approve, Backend, Capability, Offered, Tool
from quire.core.model import Principal
from quire.stores.readers import SqliteReader
from quire.stores.writer import SqliteWriter


class SqlCapabilities:
    """`changes` is a file that grows with each change, so that other servers notice it."""

    def __init__(self, writer: SqliteWriter, reader: SqliteReader, changes: Path) -> None:
        self._writer = writer
        self._reader = reader
        self._changes = str(changes)

    def version(self) -> int:
        try:
            return os.stat(self._changes).st_size  # noqa: PTH116 - called before each run
        except OSError:
            return 0

    async def save(self, capability: Capability) -> None:
        row = (
            capability.owner,
            capability.name,
            json.dumps(asdict(capability.backend)),
            json.dumps(asdict(capability.offered)),
            json.dumps(capability.approve),
            capability.installed_at,
        )
        await self._writer.run_durable(
            lambda db: db.execute("INSERT OR REPLACE INTO capabilities VALUES (?,?,?,?,?,?)", row)
        )
        self._note_change()

    async def update_offered(self, capability: Capability) -> None:
        row = (json.dumps(asdict(capability.offered)), capability.owner, capability.name, capability.installed_at)
        query = "UPDATE capabilities SET offered = ? WHERE owner = ? AND name = ? AND installed_at = ?"
        await self._writer.run_durable(lambda db: db.execute(query, row))

    async def list_for_owner(self, owner: Principal) -> list[Capability]:
        query = "SELECT * FROM capabilities WHERE owner = ? ORDER BY installed_at, name"
        return [_capability(row) for row in await self._reader.rows(query, owner)]

    async def delete(self, owner: Principal, name: str) -> None:
        await self._writer.run_durable(
            lambda db: db.execute("DELETE FROM capabilities WHERE owner=? AND name=?", (owner, name))
        )
        self._note_change()

    def _note_change(self) -> None:
        with (
            contextlib.suppress(OSError),
            Path(self._changes).open("ab") as file,
        ):  # full disk: other servers notice it later
            file.write(b".")


def _capability(row: sqlite3.Row) -> Capability:
    backend: dict[str, Any] = json.loads(row["backend"])
    offered: dict[str, Any] = json.loads(row["offered"])
    return Capability(
        owner=Principal(row["owner"]),
        name=row["name"],
        backend=Backend(**{**backend, "command": tuple(backend["command"])}),
        offered=Offered(**{**offered, "tools": tuple(Tool(**tool) for tool in offered["tools"])}),
        approve={method: Approve(word) for method, word in json.loads(row["approve"]).items()},
        installed_at=row["installed_at"],
    )
