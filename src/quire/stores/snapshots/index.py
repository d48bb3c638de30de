"""The index of the snapshots, in a database of its own: which there are, their chunks, and the packs these lie in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from quire.core.model import Loss, NotebookId, RunId, Snapshot, SnapshotId
from quire.stores.readers import SqliteReader
from quire.stores.schema import alone, migrate
from quire.stores.snapshots.packs import Pack, Row
from quire.stores.writer import SqliteWriter

_MIGRATIONS = Path(__file__).parent / "migrations"
_TOGETHER = 1000  # rows that are read or written at once: others wait so long
_FIND = "SELECT name, pack, offset, length, stored, compressed FROM chunks WHERE name IN (?*)"
_LIST = """
    SELECT id, notebook, run, name, created_at, python, size, added, seconds, variables, functions, lost
    FROM snapshots WHERE notebook = ? ORDER BY seq
"""
_PUBLISH = """
    INSERT INTO snapshots (id, notebook, run, name, created_at, python, size, added, seconds, variables, functions,
                           lost, format, signature, manifest)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
"""


class Sealed(NamedTuple):
    """A manifest as it is kept."""

    id: str
    notebook: str
    run: str | None
    format: int
    signature: bytes
    manifest: bytes  # compressed


class Index:
    def __init__(self, folder: Path) -> None:
        path = folder / "index.db"
        with alone(folder / "opening"):
            migrate(path, _MIGRATIONS)
            self._writer = SqliteWriter(path)
            self._reader = SqliteReader(path)

    async def snapshots(self, notebook: NotebookId) -> list[Snapshot]:
        return [_snapshot(row) for row in await self._reader.rows(_LIST, notebook)]

    async def ids(self) -> list[str]:
        """Of all there are, oldest first."""
        found = await self._read("SELECT id FROM snapshots ORDER BY seq")
        return [row[0] for row in found]

    async def newest_format(self) -> int:
        found = await self._read("SELECT coalesce(max(format), 0) FROM snapshots")
        return int(found[0][0])

    async def sealed(self, snapshot: str) -> Sealed | None:
        found = await self._read(
            "SELECT id, notebook, run, format, signature, manifest FROM snapshots WHERE id = ?", snapshot
        )
        return Sealed(*found[0]) if found else None

    async def drop(self, snapshots: Sequence[SnapshotId]) -> None:
        values = [(each,) for each in snapshots]
        await self._writer.run_durable(lambda db: db.executemany("DELETE FROM snapshots WHERE id = ?", values))

    async def find(self, names: Iterable[bytes]) -> dict[bytes, Row]:
        """Where chunks lie, of those that are known."""
        found: dict[bytes, Row] = {}
        wanted = iter(names)
        while some := sorted(islice(wanted, _TOGETHER)):  # in the order of the tree they lie in
            for row in await self._read(_for_each(_FIND, some), *some):
                found[row[0]] = Row._make(row)
        return found

    async def sums(self, nodes: Iterable[bytes]) -> dict[bytes, int]:
        """How many bytes nodes list, of those that were checked before."""
        found: dict[bytes, int] = {}
        wanted = iter(nodes)
        while some := list(islice(wanted, _TOGETHER)):
            query = "SELECT name, sums FROM chunks WHERE sums IS NOT NULL AND name IN (?*)"
            found.update(await self._read(_for_each(query, some), *some))
        return found

    async def distrust(self) -> None:
        """Have every node checked again: chunks are gone that some of them list."""
        await self._writer.run_durable(lambda db: db.execute("UPDATE chunks SET sums = NULL WHERE sums IS NOT NULL"))

    async def after(self, name: bytes) -> list[tuple[bytes, int, int, int]]:
        """The next chunks in the order of their names: name, pack, bytes there, whether it is a checked node."""
        return await self._read(
            "SELECT name, pack, stored, sums IS NOT NULL FROM chunks WHERE name > ? ORDER BY name LIMIT 5000", name
        )

    async def within(self, pack: int) -> list[Row]:
        found = await self._read(
            "SELECT name, pack, offset, length, stored, compressed FROM chunks WHERE pack = ? ORDER BY offset", pack
        )
        return [Row._make(row) for row in found]

    async def keep(self, chunks: Sequence[Row]) -> Sequence[Row]:
        """Write down where they lie, but for the last few, which are handed back to go with the snapshot."""
        at = 0
        while len(chunks) - at > _TOGETHER:
            some = chunks[at : at + _TOGETHER]
            await self._writer.run_durable(lambda db, some=some: _keep(db, some))  # type: ignore[misc]  # bound now
            at += _TOGETHER
        return chunks[at:]

    async def publish(self, snapshot: Snapshot, sealed: Sealed, chunks: Sequence[Row], sums: dict[bytes, int]) -> None:
        def job(db: sqlite3.Connection) -> None:
            _keep(db, chunks)
            db.executemany("UPDATE chunks SET sums = ? WHERE name = ?", [(total, name) for name, total in sums.items()])
            if snapshot.name:
                db.execute("DELETE FROM snapshots WHERE notebook = ? AND name = ?", (snapshot.notebook, snapshot.name))
            db.execute(_PUBLISH, (*_values(snapshot), sealed.format, sealed.signature, sealed.manifest))

        await self._writer.run_durable(job)

    async def forget(self, chunks: Sequence[bytes]) -> None:
        wanted = iter(chunks)
        while some := [(name,) for name in islice(wanted, _TOGETHER)]:
            await self._writer.run_durable(
                lambda db, some=some: db.executemany("DELETE FROM chunks WHERE name = ?", some)  # type: ignore[misc]
            )

    async def move(self, chunks: Sequence[tuple[Row, Row]]) -> None:
        """From where each was to where it is, unless it was moved or dropped meanwhile."""
        wanted = iter(chunks)
        query = "UPDATE chunks SET pack = ?, offset = ? WHERE name = ? AND pack = ? AND offset = ?"
        while some := [
            (new.pack, new.offset, old.name, old.pack, old.offset) for old, new in islice(wanted, _TOGETHER)
        ]:
            await self._writer.run_durable(lambda db, some=some: db.executemany(query, some))  # type: ignore[misc]

    async def packs(self) -> list[Pack]:
        return [Pack._make(row) for row in await self._read("SELECT id, file, notebook, bytes, full FROM packs")]

    async def begin_pack(self, notebook: str, file: str) -> int:
        def job(db: sqlite3.Connection) -> int:
            cursor = db.execute("INSERT INTO packs (notebook, file) VALUES (?, ?)", (notebook, file))
            assert cursor.lastrowid is not None
            return cursor.lastrowid

        return await self._writer.run_durable(job)

    async def mark_packs(self, marks: Iterable[tuple[int, int, bool]]) -> None:
        """Say of packs how many bytes count, and whether they are full."""
        values = [(length, full, pack) for pack, length, full in marks]
        await self._writer.run_durable(
            lambda db: db.executemany("UPDATE packs SET bytes = ?, full = ? WHERE id = ?", values)
        )

    async def drop_packs(self, packs: Iterable[int]) -> None:
        values = [(each,) for each in packs]
        await self._writer.run_durable(lambda db: db.executemany("DELETE FROM packs WHERE id = ?", values))

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()

    async def _read(self, query: str, *values: Any) -> list[Any]:
        return await self._reader.run(lambda db: db.execute(query, values).fetchall())


def _keep(db: sqlite3.Connection, chunks: Sequence[Row]) -> None:
    # a row that is there was just written by another, or lies in a pack that is damaged: ours is as good or better
    db.executemany(
        "INSERT OR REPLACE INTO chunks (name, pack, offset, length, stored, compressed) VALUES (?,?,?,?,?,?)", chunks
    )


def _for_each(query: str, values: Sequence[Any]) -> str:
    return query.replace("?*", ",".join("?" * len(values)))


def _values(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.id,
        snapshot.notebook,
        snapshot.run,
        snapshot.name,
        snapshot.created_at,
        snapshot.python,
        snapshot.size,
        snapshot.added,
        snapshot.seconds,
        json.dumps(snapshot.variables),
        json.dumps(snapshot.functions),
        json.dumps([asdict(each) for each in snapshot.lost]),
    )


def _snapshot(row: sqlite3.Row) -> Snapshot:
    return Snapshot(
        id=SnapshotId(row["id"]),
        notebook=NotebookId(row["notebook"]),
        run=None if row["run"] is None else RunId(row["run"]),
        name=row["name"],
        created_at=row["created_at"],
        python=row["python"],
        size=row["size"],
        added=row["added"],
        seconds=row["seconds"],
        variables=json.loads(row["variables"]),
        functions=tuple(json.loads(row["functions"])),
        lost=tuple(Loss(**each) for each in json.loads(row["lost"])),
    )
