"""The index of the snapshots in SQLite: which there are, their chunks, and the packs that have the chunks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from quire.core.model import Loss, NotebookId, RunId, Snapshot, SnapshotId
from quire.stores.readers import SqliteReader
from quire.stores.schema import migrate, open_alone
from quire.stores.snapshots.packs import ChunkRow, Pack
from quire.stores.writer import SqliteWriter

T = TypeVar("T")
_MIGRATIONS = Path(__file__).parent / "migrations"
_BATCH_ROWS = 1000  # read or written in one transaction, which others wait for
_FIND = "SELECT name, pack, offset, length, stored, compressed FROM chunks WHERE name IN (?*)"
_FIND_SUMS = "SELECT name, sums FROM chunks WHERE sums IS NOT NULL AND name IN (?*)"
_INSERT_CHUNK = "INSERT OR REPLACE INTO chunks (name, pack, offset, length, stored, compressed) VALUES (?,?,?,?,?,?)"
_LIST = """
    SELECT id, notebook, run, name, created_at, python, size, added, seconds, variables, functions, lost
    FROM snapshots WHERE notebook = ? ORDER BY seq
"""
_PUBLISH = """
    INSERT INTO snapshots (id, notebook, run, name, created_at, python, size, added, seconds, variables, functions,
                           lost, format, signature, manifest)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
"""


class SignedManifest(NamedTuple):
    id: str
    notebook: str
    run: str | None
    format: int
    signature: bytes
    manifest: bytes  # compressed


def open_index(folder: Path) -> tuple[SqliteWriter, SqliteReader]:
    path = folder / "index.db"
    with open_alone(folder / "opening"):
        migrate(path, _MIGRATIONS)
        return SqliteWriter(path), SqliteReader(path)


class SnapshotIndex:
    def __init__(self, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._writer = writer
        self._reader = reader

    async def list_for_notebook(self, notebook: NotebookId) -> list[Snapshot]:
        return [_snapshot_from_row(row) for row in await self._reader.rows(_LIST, notebook)]

    async def list_ids(self) -> list[str]:
        """Return the ids of all snapshots, oldest first."""
        return [row["id"] for row in await self._reader.rows("SELECT id FROM snapshots ORDER BY seq")]

    async def newest_format(self) -> int:
        found = await self._reader.rows("SELECT coalesce(max(format), 0) AS format FROM snapshots")
        return int(found[0]["format"])

    async def find_manifest(self, snapshot: str) -> SignedManifest | None:
        query = "SELECT id, notebook, run, format, signature, manifest FROM snapshots WHERE id = ?"
        found = await self._reader.rows(query, snapshot)
        return SignedManifest(*found[0]) if found else None

    async def publish(
        self, snapshot: Snapshot, signed: SignedManifest, chunks: Sequence[ChunkRow], sums: dict[bytes, int]
    ) -> None:
        """Add a snapshot with the last of its chunks, and the sums of its nodes that were checked."""

        def job(db: sqlite3.Connection) -> None:
            _insert_chunks(db, chunks)
            db.executemany("UPDATE chunks SET sums = ? WHERE name = ?", [(total, name) for name, total in sums.items()])
            if snapshot.name:
                db.execute("DELETE FROM snapshots WHERE notebook = ? AND name = ?", (snapshot.notebook, snapshot.name))
            db.execute(_PUBLISH, (*_snapshot_to_row(snapshot), signed.format, signed.signature, signed.manifest))

        await self._writer.run_durable(job)

    async def delete(self, snapshots: Sequence[SnapshotId]) -> None:
        values = [(snapshot,) for snapshot in snapshots]
        await self._writer.run_durable(lambda db: db.executemany("DELETE FROM snapshots WHERE id = ?", values))


class ChunkIndex:
    """Chunks and packs. The `sums` of a node is the number of bytes that its chunks have; it is set when the node and
    its chunks were checked."""

    def __init__(self, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._writer = writer
        self._reader = reader

    async def find(self, names: Iterable[bytes]) -> dict[bytes, ChunkRow]:
        """Return where chunks are, without those that the index does not have."""
        found: dict[bytes, ChunkRow] = {}
        for batch in _batches(names):
            rows = await self._read(_with_marks(_FIND, batch), *sorted(batch))  # sorted: faster
            found.update((row[0], ChunkRow._make(row)) for row in rows)
        return found

    async def find_sums(self, nodes: Iterable[bytes]) -> dict[bytes, int]:
        """Return the sums of nodes that were checked."""
        found: dict[bytes, int] = {}
        for batch in _batches(nodes):
            found.update(await self._read(_with_marks(_FIND_SUMS, batch), *batch))
        return found

    async def clear_sums(self) -> None:
        """Have each node checked again, because chunks of some are gone."""
        await self._writer.run_durable(lambda db: db.execute("UPDATE chunks SET sums = NULL WHERE sums IS NOT NULL"))

    async def list_after(self, name: bytes) -> list[tuple[bytes, int, int, int]]:
        """Return the next chunks by name: their names, packs, stored bytes, and whether they are checked nodes."""
        query = "SELECT name, pack, stored, sums IS NOT NULL FROM chunks WHERE name > ? ORDER BY name LIMIT 5000"
        return await self._read(query, name)

    async def list_in_pack(self, pack: int) -> list[ChunkRow]:
        query = "SELECT name, pack, offset, length, stored, compressed FROM chunks WHERE pack = ? ORDER BY offset"
        return [ChunkRow._make(row) for row in await self._read(query, pack)]

    async def add(self, chunks: Sequence[ChunkRow]) -> Sequence[ChunkRow]:
        """Add chunks, except for the last few: these are returned, to be added with the snapshot."""
        at = 0
        while len(chunks) - at > _BATCH_ROWS:
            batch = chunks[at : at + _BATCH_ROWS]
            await self._writer.run_durable(lambda db, batch=batch: _insert_chunks(db, batch))  # type: ignore[misc]
            at += _BATCH_ROWS
        return chunks[at:]

    async def delete(self, chunks: Sequence[bytes]) -> None:
        await self._write_all("DELETE FROM chunks WHERE name = ?", ((name,) for name in chunks))

    async def move(self, chunks: Sequence[tuple[ChunkRow, ChunkRow]]) -> None:
        """Change where chunks are, from old to new, unless they were moved or deleted meanwhile."""
        query = "UPDATE chunks SET pack = ?, offset = ? WHERE name = ? AND pack = ? AND offset = ?"
        await self._write_all(query, ((new.pack, new.offset, old.name, old.pack, old.offset) for old, new in chunks))

    async def list_packs(self) -> list[Pack]:
        return [Pack._make(row) for row in await self._read("SELECT id, file, notebook, bytes, full FROM packs")]

    async def add_pack(self, notebook: str, file: str) -> int:
        def job(db: sqlite3.Connection) -> int:
            cursor = db.execute("INSERT INTO packs (notebook, file) VALUES (?, ?)", (notebook, file))
            assert cursor.lastrowid is not None
            return cursor.lastrowid

        return await self._writer.run_durable(job)

    async def update_packs(self, packs: Iterable[tuple[int, int, bool]]) -> None:
        """Set of each pack, by its id, how many bytes are in use and whether it is full."""
        values = [(length, full, pack) for pack, length, full in packs]
        query = "UPDATE packs SET bytes = ?, full = ? WHERE id = ?"
        await self._writer.run_durable(lambda db: db.executemany(query, values))

    async def delete_packs(self, packs: Iterable[int]) -> None:
        values = [(pack,) for pack in packs]
        await self._writer.run_durable(lambda db: db.executemany("DELETE FROM packs WHERE id = ?", values))

    async def _write_all(self, query: str, values: Iterable[tuple[Any, ...]]) -> None:
        for batch in _batches(values):
            await self._writer.run_durable(lambda db, batch=batch: db.executemany(query, batch))  # type: ignore[misc]

    async def _read(self, query: str, *values: Any) -> list[Any]:
        return await self._reader.run(lambda db: db.execute(query, values).fetchall())


def _insert_chunks(db: sqlite3.Connection, chunks: Sequence[ChunkRow]) -> None:
    # a row that is there was written by another server just now, or its pack is damaged
    db.executemany(_INSERT_CHUNK, chunks)


def _batches(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while batch := list(islice(rest, _BATCH_ROWS)):
        yield batch


def _with_marks(query: str, values: Sequence[Any]) -> str:
    return query.replace("?*", ",".join("?" * len(values)))


def _snapshot_to_row(snapshot: Snapshot) -> tuple[Any, ...]:
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
        json.dumps([asdict(loss) for loss in snapshot.lost]),
    )


def _snapshot_from_row(row: sqlite3.Row) -> Snapshot:
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
        lost=tuple(Loss(**loss) for loss in json.loads(row["lost"])),
    )
