"""From a snapshot to a recipe: its manifest is checked, and each of its chunks is found."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import anyio.to_thread

from quire.core.errors import OperationFailed
from quire.core.model import NotebookId, Snapshot
from quire.core.ports.snapshots import Recipe
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import BadSnapshot, Manifest
from quire.stores.snapshots import drafts
from quire.stores.snapshots.index import SignedManifest
from quire.stores.snapshots.packs import ChunkRow, Packs
from quire.stores.snapshots.repository import FoundChunks, PackFiles, SnapshotRepository
from quire.stores.snapshots.signing import is_signed

_BATCH_NODES = 64
_CACHE_BYTES = 32 << 20  # of the lists of base snapshots
_COPIED_PACK = 0  # the id of the file with chunks that are in packs of other notebooks


@dataclass(frozen=True, kw_only=True)
class CheckedManifest:
    data: bytes
    manifest: Manifest


async def load_manifest(repository: SnapshotRepository, snapshot: Snapshot) -> Manifest:
    """Raises OperationFailed."""
    return (await _load(repository, snapshot)).manifest


async def build_recipe(repository: SnapshotRepository, snapshot: Snapshot) -> Recipe:
    """Return what a kernel needs to load the snapshot. Raises OperationFailed."""
    async with repository.lock_shared():
        checked = await _load(repository, snapshot)
        try:
            lists = await _read_lists(repository, checked.manifest)
            found = await repository.find_chunks(chain.from_iterable(lists.values()))
            return await anyio.to_thread.run_sync(
                _open_recipe, repository.packs, checked, lists, found, snapshot.notebook
            )
        except BadSnapshot as error:
            raise OperationFailed(f"Snapshot {snapshot.id} is damaged: {error}. It was not loaded.") from error
        except OSError as error:
            raise OperationFailed(f"Snapshot {snapshot.id} could not be loaded: {error.strerror}.") from error


async def _load(repository: SnapshotRepository, snapshot: Snapshot) -> CheckedManifest:
    signed = await repository.snapshots.find_manifest(snapshot.id)
    if signed is None:
        raise OperationFailed(f"Snapshot {snapshot.id} is no longer there.")
    return await anyio.to_thread.run_sync(_check, repository.key, signed)


def _check(key: bytes, signed: SignedManifest) -> CheckedManifest:
    try:
        data = decompress_manifest(signed)
        if not is_signed(key, signed.id, signed.notebook, signed.run, data, signed.signature):
            raise OperationFailed(
                f"Snapshot {signed.id} is not signed by this data directory's key: it was altered, or copied from "
                "elsewhere. It was not loaded."
            )
        return CheckedManifest(data=data, manifest=chunks.parse_manifest(data))
    except BadSnapshot as error:
        raise OperationFailed(f"Snapshot {signed.id} cannot be loaded: {error}.") from error


def decompress_manifest(signed: SignedManifest) -> bytes:
    """Raises BadSnapshot."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(signed.manifest, drafts.MAX_MANIFEST_BYTES)
    except zlib.error as error:
        raise BadSnapshot("its manifest is damaged") from error
    if not decompressor.eof:
        raise BadSnapshot("its manifest is damaged")
    return data


async def _read_lists(repository: SnapshotRepository, manifest: Manifest) -> dict[bytes, list[bytes]]:
    """Return the names of chunks that each node lists. Raises BadSnapshot if one is missing."""
    nodes = set(chain.from_iterable(whole.nodes for whole in manifest.wholes))
    found = await repository.find_chunks(nodes)
    if len(found.rows) < len(nodes):
        raise BadSnapshot(_missing_chunks(len(nodes) - len(found.rows), found.files))
    lists = await anyio.to_thread.run_sync(read_nodes, repository.packs, found.files.names, found.rows.values())
    if len(lists) < len(nodes):
        raise BadSnapshot(f"{len(nodes) - len(lists)} of its lists of chunks cannot be read")
    return lists


def batches(nodes: Sequence[ChunkRow]) -> Iterator[Sequence[ChunkRow]]:
    return (nodes[at : at + _BATCH_NODES] for at in range(0, len(nodes), _BATCH_NODES))


def read_nodes(packs: Packs, files: dict[int, str], nodes: Iterable[ChunkRow]) -> dict[bytes, list[bytes]]:
    """Return the names of chunks that each node lists, without nodes that cannot be read."""
    lists = {}
    for row, chunk in packs.read(nodes, files):
        with contextlib.suppress(BadSnapshot):
            if chunk is not None:
                lists[row.name] = chunks.parse_node(chunk[0])
    return lists


def _missing_chunks(count: int, files: PackFiles) -> str:
    gone = sorted(name for pack, name in files.names.items() if pack not in files.sizes)
    where = f" (the pack {', '.join(gone)} is gone)" if gone else ""
    return f"{count:,} of its chunks are missing{where}"


def _open_recipe(
    packs: Packs, checked: CheckedManifest, lists: dict[bytes, list[bytes]], found: FoundChunks, notebook: NotebookId
) -> Recipe:
    """Open the packs of the notebook for the kernel. It must not see variables of other notebooks, so it gets a copy of
    the chunks that are in their packs."""
    rows, files = dict(found.rows), found.files
    names = [name for whole in checked.manifest.wholes for node in whole.nodes for name in lists[node]]
    missing = {name for name in names if name not in rows}
    if missing:
        raise BadSnapshot(_missing_chunks(len(missing), files))
    foreign = [rows[name] for name in set(names) if files.notebooks.get(rows[name].pack) != notebook]
    with contextlib.ExitStack() as on_error:
        handles: dict[int, int] = {}
        if foreign:
            handles[_COPIED_PACK], copied = packs.copy_chunks(_COPIED_PACK, foreign, files.names)
            on_error.callback(os.close, handles[_COPIED_PACK])
            rows |= {row.name: row for row in copied}
        numbers = {pack: number for number, pack in enumerate(sorted({rows[name].pack for name in names}))}
        for pack in numbers.keys() - handles.keys():
            handles[pack] = packs.open(files.names[pack])
            on_error.callback(os.close, handles[pack])
        places = chunks.dump_places(
            (name, numbers[pack], offset, length, stored, compressed)
            for name, pack, offset, length, stored, compressed in map(rows.__getitem__, names)
        )
        counts = [sum(len(lists[node]) for node in whole.nodes) for whole in checked.manifest.wholes]
        file = _memory_file(chunks.dump_recipe(checked.data, counts, places))
        on_error.pop_all()
    return Recipe(file=file, packs=tuple(handles[pack] for pack in numbers))


def _memory_file(data: bytes) -> int:
    """Return a file in memory. On systems without such files it is one on disk without a name."""
    file = os.memfd_create("recipe") if hasattr(os, "memfd_create") else _unnamed_file()
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file


def _unnamed_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class BaseRecipes:
    """Recipes of base snapshots: they name the chunks that the store has, not where these are.

    What a node lists never changes, so it is cached. The index knows whether its chunks are all there.
    """

    def __init__(self, repository: SnapshotRepository) -> None:
        self._repository = repository
        self._cache: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._cache_bytes = 0

    async def build(self, snapshot: Snapshot) -> int:
        """Return the file of the recipe. Raises OperationFailed, BadSnapshot or OSError if a part is missing."""
        async with self._repository.lock_shared():
            checked = await _load(self._repository, snapshot)
            files = await self._repository.pack_files()
            nodes = list(chain.from_iterable(whole.nodes for whole in checked.manifest.wholes))
            complete = {} if files.damaged else await self._repository.chunks.find_sums(set(nodes))
            known = {node: self._cache[node] for node in complete if node in self._cache}
            found = await self._repository.find_chunks(node for node in nodes if node not in known)
            for batch in batches(list(found.rows.values())):
                known.update(await self._read_complete(found.files, batch))
        if any(node not in known for node in nodes):
            raise BadSnapshot("a list of its chunks is gone")
        for node in nodes:
            self._remember(node, *known[node])
        counts = [sum(known[node][0] for node in whole.nodes) for whole in checked.manifest.wholes]
        places = b"".join(known[node][1] for node in nodes)
        return await anyio.to_thread.run_sync(_memory_file, chunks.dump_recipe(checked.data, counts, places))

    async def _read_complete(self, files: PackFiles, nodes: Sequence[ChunkRow]) -> dict[bytes, tuple[int, bytes]]:
        """Return how many chunks each node lists and the list, without nodes that lack a chunk."""
        lists = await anyio.to_thread.run_sync(read_nodes, self._repository.packs, files.names, nodes)
        rows = (await self._repository.find_chunks(chain.from_iterable(lists.values()))).rows
        return {
            node: (len(names), chunks.dump_places((name, 0, 0, *rows[name][3:]) for name in names))
            for node, names in lists.items()
            if all(name in rows for name in names)
        }

    def _remember(self, node: bytes, count: int, places: bytes) -> None:
        if node not in self._cache:
            self._cache_bytes += len(places)
        self._cache[node] = (count, places)
        self._cache.move_to_end(node)
        while self._cache_bytes > _CACHE_BYTES:
            self._cache_bytes -= len(self._cache.popitem(last=False)[1][1])
