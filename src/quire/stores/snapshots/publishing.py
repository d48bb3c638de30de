"""From a draft to a snapshot: checked, appended to packs, synced, then added to the index.

Rows are added when all of their data is on disk. Data without rows is cut off again: at once, or when the pack is next
written to.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import AsyncIterator
from itertools import chain
from uuid import uuid4

import anyio
import anyio.to_thread

from quire.core.model import NotebookId, RunId, Snapshot, SnapshotId
from quire.core.ports.snapshots import Draft, Written
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import BadSnapshot, Whole
from quire.stores.snapshots import drafts, recipes
from quire.stores.snapshots.drafts import ChunkGroup, ParsedDraft
from quire.stores.snapshots.index import SignedManifest
from quire.stores.snapshots.packs import ChunkRow, PackWriter
from quire.stores.snapshots.repository import SnapshotRepository
from quire.stores.snapshots.signing import signature

_MAX_STEP_BYTES = 16 << 20  # copied before a cancellation has an effect


async def publish(
    repository: SnapshotRepository, draft: Draft, written: Written, run: RunId | None, name: str
) -> Snapshot:
    """Raises BadSnapshot, OSError or OperationFailed."""
    async with repository.lock_shared():
        parsed = await anyio.to_thread.run_sync(drafts.parse_draft, draft.file, written)
        known = (await repository.find_chunks(entry.name for entry in parsed.entries)).rows
        async with _appending(repository, draft.notebook) as added:
            steps = await anyio.to_thread.run_sync(_copy_steps, parsed, known)
            size = sum(group.length for step in steps for group in step)
            await anyio.to_thread.run_sync(repository.packs.check_space, size)
            for groups in steps:
                await added.copy(draft.file, groups)
            sums = await _check_wholes(repository, parsed.manifest.wholes, added)
            await added.sync()
            snapshot = _new_snapshot(parsed, draft.notebook, run, name, added.bytes)
            signed = await anyio.to_thread.run_sync(_sign, repository.key, snapshot, parsed)
            with anyio.CancelScope(shield=True):  # all rows are written while the lock is held
                await added.update_packs()
                rest = await repository.chunks.add(list(added.rows.values()))
                await repository.snapshots.publish(snapshot, signed, rest, sums)
    return snapshot


def _copy_steps(parsed: ParsedDraft, known: dict[bytes, ChunkRow]) -> list[list[ChunkGroup]]:
    steps: list[list[ChunkGroup]] = []
    left = 0
    for group in drafts.group_new_chunks(parsed.entries, known):
        if left <= 0:
            steps.append([])
            left = _MAX_STEP_BYTES
        steps[-1].append(group)
        left -= group.length
    return steps


class _AppendedChunks:
    """The chunks a snapshot adds, and the packs that they are appended to."""

    def __init__(self, repository: SnapshotRepository, notebook: NotebookId) -> None:
        self._repository = repository
        self._notebook = notebook
        self._has_rows = False
        self._current: PackWriter | None = None
        self.rows: dict[bytes, ChunkRow] = {}
        self.packs: dict[int, PackWriter] = {}

    @property
    def bytes(self) -> int:
        return sum(pack.end - pack.begin for pack in self.packs.values())

    async def copy(self, file: int, groups: list[ChunkGroup]) -> None:
        if self._current is None or self._current.end >= self._repository.pack_bytes:
            self._current = await self._find_pack()
        pack = self._current
        rows = await anyio.to_thread.run_sync(
            lambda: [row for group in groups for row in drafts.copy_group(file, group, pack)]
        )
        self.rows.update((row.name, row) for row in rows)

    async def _find_pack(self) -> PackWriter:
        """Open a pack of the notebook that is not full and that no other server writes to, or a new one."""
        for pack in await self._repository.chunks.list_packs():
            if pack.full or pack.notebook != self._notebook or pack.id in self.packs:
                continue
            writer = await anyio.to_thread.run_sync(self._repository.packs.open_writer, pack.file)
            if writer is None:
                continue
            if await self._start(writer, pack.id):
                return self._add_pack(writer)
            writer.close()
        writer = await anyio.to_thread.run_sync(self._repository.packs.create)
        try:
            writer.start(await self._repository.chunks.add_pack(self._notebook, writer.file), 0)
        except BaseException:
            writer.close()
            raise
        return self._add_pack(writer)

    async def _start(self, writer: PackWriter, pack_id: int) -> bool:
        try:
            packs = await self._repository.chunks.list_packs()  # again, now that the pack is locked
            pack = next(pack for pack in packs if pack.id == pack_id)
            return not pack.full and await anyio.to_thread.run_sync(writer.start, pack_id, pack.bytes)
        except BaseException:
            writer.close()
            raise

    def _add_pack(self, writer: PackWriter) -> PackWriter:
        self.packs[writer.id] = writer
        return writer

    async def sync(self) -> None:
        for pack in self.packs.values():
            await anyio.to_thread.run_sync(pack.sync)

    async def update_packs(self) -> None:
        full = self._repository.pack_bytes
        if self.packs:
            packs = [(pack.id, pack.end, pack.end >= full) for pack in self.packs.values()]
            await self._repository.chunks.update_packs(packs)
        self._has_rows = True

    def close(self) -> None:
        for pack in self.packs.values():
            if not self._has_rows:
                with contextlib.suppress(OSError):  # the next writer cuts it off
                    pack.undo()
            pack.close()


@contextlib.asynccontextmanager
async def _appending(repository: SnapshotRepository, notebook: NotebookId) -> AsyncIterator[_AppendedChunks]:
    added = _AppendedChunks(repository, notebook)
    try:
        yield added
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(added.close)


async def _check_wholes(
    repository: SnapshotRepository, wholes: tuple[Whole, ...], added: _AppendedChunks
) -> dict[bytes, int]:
    """Check that each node is there and lists chunks that are there, and the lengths of the wholes.

    Returns the sums of the nodes that were not checked before. Raises BadSnapshot.
    """
    nodes = set(chain.from_iterable(whole.nodes for whole in wholes))
    found = await repository.find_chunks(nodes - added.rows.keys())
    rows = found.rows | {name: added.rows[name] for name in nodes & added.rows.keys()}
    if len(rows) < len(nodes):
        raise BadSnapshot("it names a list of chunks that is not there")
    if sum(rows[node].length for whole in wholes for node in whole.nodes) > drafts.MAX_REFERENCES * chunks.DIGEST_BYTES:
        raise BadSnapshot("it has too many parts")
    checked = {} if found.files.damaged else await repository.chunks.find_sums(nodes - added.rows.keys())
    files = found.files.names | {pack.id: pack.file for pack in added.packs.values()}
    new = await _sum_nodes(repository, [rows[node] for node in nodes - checked.keys()], files, added)
    sums = checked | new
    if any(whole.length != sum(sums[node] for node in whole.nodes) for whole in wholes):
        raise BadSnapshot("its chunks do not add up to what it says")
    return new


async def _sum_nodes(
    repository: SnapshotRepository, nodes: list[ChunkRow], files: dict[int, str], added: _AppendedChunks
) -> dict[bytes, int]:
    sums: dict[bytes, int] = {}
    for batch in recipes.batches(nodes):
        lists = await anyio.to_thread.run_sync(recipes.read_nodes, repository.packs, files, batch)
        if len(lists) < len(batch):
            raise BadSnapshot("a list of its chunks cannot be read")
        names = set(chain.from_iterable(lists.values()))
        rows = (await repository.find_chunks(names - added.rows.keys())).rows
        rows.update((name, added.rows[name]) for name in names & added.rows.keys())
        if len(rows) < len(names):
            raise BadSnapshot("it names a chunk that is not there")
        sums.update((node, sum(rows[name].length for name in listed)) for node, listed in lists.items())
    return sums


def _new_snapshot(parsed: ParsedDraft, notebook: NotebookId, run: RunId | None, name: str, added: int) -> Snapshot:
    return Snapshot(
        id=SnapshotId(uuid4().hex[:16]),
        notebook=notebook,
        run=run,
        name=name,
        created_at=time.time(),
        python=parsed.manifest.python.encode("utf-8", "replace").decode(),
        size=sum(whole.length for whole in parsed.manifest.wholes),
        added=added,
        seconds=parsed.info.seconds,
        variables=parsed.info.variables,
        functions=parsed.info.functions,
        lost=parsed.info.lost,
    )


def _sign(key: bytes, snapshot: Snapshot, parsed: ParsedDraft) -> SignedManifest:
    return SignedManifest(
        id=snapshot.id,
        notebook=snapshot.notebook,
        run=snapshot.run,
        format=parsed.manifest.format,
        signature=signature(key, snapshot.id, snapshot.notebook, snapshot.run, parsed.manifest_bytes),
        manifest=zlib.compress(parsed.manifest_bytes, 1),
    )
