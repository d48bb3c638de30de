"""Deletes chunks that no snapshot uses: first their rows, then empty packs. Packs that are mostly unused are rewritten.

Used chunks are collected while others publish. Then, with the exclusive lock, those of new snapshots are added and the
rest is deleted: no publisher relies on a chunk at that moment. Packs are copied without that lock, because full packs
never change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread

from quire.core.errors import OperationFailed
from quire.core.model import Swept
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import BadSnapshot
from quire.stores.snapshots import recipes
from quire.stores.snapshots.packs import ChunkRow, Pack, Packs, PackWriter
from quire.stores.snapshots.repository import SnapshotRepository

_COPY_BATCH = 128  # chunks


async def sweep(repository: SnapshotRepository, *, dry: bool) -> Swept:
    async with repository.lock_sweep():
        if await repository.snapshots.newest_format() > chunks.FORMAT:
            raise OperationFailed("A newer Quire wrote snapshots here: nothing was swept. Upgrade.")
        used = _UsedChunks(repository)
        await used.collect()
        async with repository.lock_exclusive():
            await used.collect()
            usage = await _scan(repository, used.names)
            if dry:
                return Swept(freed=usage.freed, chunks=len(usage.unused), kept=usage.kept)
            with anyio.CancelScope(shield=True):  # all rows are deleted while the lock is held
                if not used.is_complete:
                    await repository.chunks.clear_sums()
                freed = await _delete_unused(repository, usage)
        with contextlib.suppress(OSError):  # no space for new packs: what was deleted stays deleted
            for packs in _groups_to_rewrite(usage.sparse_packs, usage.used_bytes, repository.pack_bytes):
                freed += await _rewrite(repository, packs)
        left = await repository.pack_files()
    return Swept(freed=freed, chunks=len(usage.unused), kept=sum(left.sizes.values()))


class _UsedChunks:
    """The names of all chunks and nodes that snapshots use."""

    def __init__(self, repository: SnapshotRepository) -> None:
        self.names: set[bytes] = set()
        self.is_complete = True  # False: a snapshot is damaged, so that some of its chunks are not known
        self._repository = repository
        self._collected: set[str] = set()
        self._nodes: set[bytes] = set()

    async def collect(self) -> None:
        """Add the chunks of snapshots that are new since the last call."""
        for snapshot in await self._repository.snapshots.list_ids():
            if snapshot in self._collected:
                continue
            self._collected.add(snapshot)
            signed = await self._repository.snapshots.find_manifest(snapshot)
            if signed is None:
                continue
            try:
                manifest = chunks.parse_manifest(await anyio.to_thread.run_sync(recipes.decompress_manifest, signed))
            except BadSnapshot:
                continue  # it can never be loaded
            await self._collect_nodes({node for whole in manifest.wholes for node in whole.nodes} - self._nodes)

    async def _collect_nodes(self, nodes: set[bytes]) -> None:
        self._nodes |= nodes
        self.names |= nodes
        found = await self._repository.find_chunks(nodes)
        self.is_complete &= len(found.rows) == len(nodes)
        for batch in recipes.batches(list(found.rows.values())):
            lists = await anyio.to_thread.run_sync(recipes.read_nodes, self._repository.packs, found.files.names, batch)
            self.names.update(*lists.values())
            self.is_complete &= len(lists) == len(batch)


@dataclass(frozen=True, kw_only=True)
class _Usage:
    unused: Sequence[bytes]  # chunks, nodes first
    packs: Sequence[Pack]
    used_bytes: dict[int, int]  # by pack
    sizes: dict[int, int]  # by pack
    stray_files: frozenset[str]  # left by a crash

    @property
    def empty_packs(self) -> list[Pack]:
        return [pack for pack in self.packs if not self.used_bytes.get(pack.id)]

    @property
    def sparse_packs(self) -> list[Pack]:
        """Packs of which more than half is unused."""
        return [pack for pack in self.packs if 0 < 2 * self.used_bytes.get(pack.id, 0) < self.sizes.get(pack.id, 0)]

    @property
    def freed(self) -> int:
        packs = (*self.empty_packs, *self.sparse_packs)
        return sum(self.sizes.get(pack.id, 0) - self.used_bytes.get(pack.id, 0) for pack in packs)

    @property
    def kept(self) -> int:
        return sum(self.sizes.values()) - self.freed


async def _scan(repository: SnapshotRepository, used: set[bytes]) -> _Usage:
    nodes: list[bytes] = []
    leaves: list[bytes] = []
    used_bytes: dict[int, int] = {}
    last = b""
    while rows := await repository.chunks.list_after(last):
        for name, pack, stored, is_checked_node in rows:
            if name in used:
                used_bytes[pack] = used_bytes.get(pack, 0) + stored
            else:
                (nodes if is_checked_node else leaves).append(name)
        last = rows[-1][0]
    packs = await repository.chunks.list_packs()
    files = await anyio.to_thread.run_sync(repository.packs.list_files)
    return _Usage(
        unused=nodes + leaves,  # a checked node promises that its leaves are there, so it is deleted first
        packs=packs,
        used_bytes=used_bytes,
        sizes=await anyio.to_thread.run_sync(repository.packs.sizes, packs),
        stray_files=frozenset(files - {pack.file for pack in packs}),
    )


async def _delete_unused(repository: SnapshotRepository, usage: _Usage) -> int:
    """Return how many bytes that freed."""
    await repository.chunks.delete(usage.unused)
    await repository.chunks.delete_packs(pack.id for pack in usage.empty_packs)
    await repository.chunks.update_packs((pack.id, pack.bytes, True) for pack in usage.sparse_packs)
    files = [*(pack.file for pack in usage.empty_packs), *usage.stray_files]
    return await anyio.to_thread.run_sync(repository.packs.remove, files)


def _groups_to_rewrite(packs: Iterable[Pack], used_bytes: dict[int, int], limit: int) -> Iterator[list[Pack]]:
    """Yield packs of one notebook whose used chunks fit into one pack."""
    group: list[Pack] = []
    left = 0
    for pack in sorted(packs, key=lambda pack: (pack.notebook, pack.id)):
        if group and (pack.notebook != group[0].notebook or used_bytes[pack.id] > left):
            yield group
            group = []
        if not group:
            left = limit
        group.append(pack)
        left -= used_bytes[pack.id]
    if group:
        yield group


async def _rewrite(repository: SnapshotRepository, old: Sequence[Pack]) -> int:
    """Copy the used chunks of packs to a new one, which replaces them. Return how many bytes that freed."""
    rows = [row for pack in old for row in await repository.chunks.list_in_pack(pack.id)]
    files = {pack.id: pack.file for pack in old}
    new = await anyio.to_thread.run_sync(repository.packs.create)
    has_rows = False
    try:
        new.start(await repository.chunks.add_pack(old[0].notebook, new.file), 0)
        moved: list[tuple[ChunkRow, ChunkRow]] = []
        for at in range(0, len(rows), _COPY_BATCH):
            batch = rows[at : at + _COPY_BATCH]
            moved += await anyio.to_thread.run_sync(_copy_chunks, repository.packs, files, batch, new)
        await anyio.to_thread.run_sync(new.sync)
        async with repository.lock_exclusive():
            with anyio.CancelScope(shield=True):
                has_rows = True
                await repository.chunks.update_packs([(new.id, new.end, True)])
                await repository.chunks.move(moved)
                damaged = {row.name for row in rows} - {row.name for row, _ in moved}
                if damaged:  # without a row, the next snapshot that has the chunk writes it again
                    await repository.chunks.clear_sums()
                    await repository.chunks.delete(list(damaged))
                await repository.chunks.delete_packs(files)
                freed = await anyio.to_thread.run_sync(repository.packs.remove, list(files.values())) - new.end
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_close, new, has_rows)
    return freed


def _copy_chunks(
    packs: Packs, files: dict[int, str], rows: Sequence[ChunkRow], new: PackWriter
) -> list[tuple[ChunkRow, ChunkRow]]:
    moved = []
    for row, chunk in packs.read(rows, files):
        if chunk is not None:
            moved.append((row, row._replace(pack=new.id, offset=new.end)))
            new.append(chunk[1])
    return moved


def _close(pack: PackWriter, has_rows: bool) -> None:
    if not has_rows:
        with contextlib.suppress(OSError):
            pack.undo()
    pack.close()
