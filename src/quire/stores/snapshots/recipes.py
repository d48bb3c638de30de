"""From a snapshot to a recipe: its manifest checked, and every chunk of it found."""

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
from quire.stores.snapshots.index import Sealed
from quire.stores.snapshots.packs import Packs, Row
from quire.stores.snapshots.seal import is_ours
from quire.stores.snapshots.shelf import Files, Found, Shelf

_AT_ONCE = 64  # nodes
_REMEMBERED = 32 << 20  # bytes of what bases list that are kept in memory


@dataclass(frozen=True, kw_only=True)
class Opened:
    said: bytes
    manifest: Manifest


async def said_in(shelf: Shelf, snapshot: Snapshot) -> Manifest:
    """Its manifest. Raises OperationFailed."""
    return (await _opened(shelf, snapshot)).manifest


async def recipe(shelf: Shelf, snapshot: Snapshot) -> Recipe:
    """To load it. Raises OperationFailed."""
    async with shelf.with_others():
        opened = await _opened(shelf, snapshot)
        try:
            nodes = await _nodes(shelf, opened.manifest)
            found = await shelf.find(chain.from_iterable(nodes.values()))
            return await anyio.to_thread.run_sync(_bound, shelf.packs, opened, nodes, found, snapshot.notebook)
        except BadSnapshot as error:
            raise OperationFailed(f"Snapshot {snapshot.id} is damaged: {error}. It was not loaded.") from error
        except OSError as error:
            raise OperationFailed(f"Snapshot {snapshot.id} could not be loaded: {error.strerror}.") from error


async def _opened(shelf: Shelf, snapshot: Snapshot) -> Opened:
    sealed = await shelf.index.sealed(snapshot.id)
    if sealed is None:
        raise OperationFailed(f"Snapshot {snapshot.id} is no longer there.")
    return await anyio.to_thread.run_sync(_unsealed, shelf.key, sealed)


def _unsealed(key: bytes, sealed: Sealed) -> Opened:
    try:
        said = manifest_of(sealed)
        if not is_ours(key, sealed.id, sealed.notebook, sealed.run, said, sealed.signature):
            raise OperationFailed(
                f"Snapshot {sealed.id} is not signed by this data directory's key: it was altered, or copied from "
                "elsewhere. It was not loaded."
            )
        return Opened(said=said, manifest=chunks.parse_manifest(said))
    except BadSnapshot as error:
        raise OperationFailed(f"Snapshot {sealed.id} cannot be loaded: {error}.") from error


def manifest_of(sealed: Sealed) -> bytes:
    opened = zlib.decompressobj()
    try:
        said = opened.decompress(sealed.manifest, drafts.MANIFEST)
    except zlib.error as error:
        raise BadSnapshot("its manifest is damaged") from error
    if not opened.eof:
        raise BadSnapshot("its manifest is damaged")
    return said


async def _nodes(shelf: Shelf, manifest: Manifest) -> dict[bytes, list[bytes]]:
    """What each node of a manifest lists."""
    wanted = set(chain.from_iterable(whole.nodes for whole in manifest.wholes))
    there = await shelf.find(wanted)
    if len(there.rows) < len(wanted):
        raise BadSnapshot(missing(len(wanted) - len(there.rows), there.files))
    found = await anyio.to_thread.run_sync(listed, shelf.packs, there.files.names, there.rows.values())
    if len(found) < len(wanted):
        raise BadSnapshot(f"{len(wanted) - len(found)} of its lists of chunks cannot be read")
    return found


def in_turn(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Nodes, so many at a time as are well read at once."""
    return (rows[at : at + _AT_ONCE] for at in range(0, len(rows), _AT_ONCE))


def listed(packs: Packs, files: dict[int, str], nodes: Iterable[Row]) -> dict[bytes, list[bytes]]:
    """What nodes list, of those that can be read."""
    found = {}
    for row, content in packs.contents(nodes, files):
        with contextlib.suppress(BadSnapshot):
            if content is not None:
                found[row.name] = chunks.parse_node(content)
    return found


def missing(count: int, files: Files) -> str:
    gone = sorted(name for pack, name in files.names.items() if pack not in files.sizes)
    where = f" (the pack {', '.join(gone)} is gone)" if gone else ""
    return f"{count:,} of its chunks are missing{where}"


_FOREIGN = 0  # in place of the packs that are other notebooks'


def _bound(packs: Packs, opened: Opened, nodes: dict[bytes, list[bytes]], found: Found, notebook: NotebookId) -> Recipe:
    """The kernel gets the notebook's own packs as they are. Of another's, whose variables it must not see, it gets a
    copy of the chunks the two have in common."""
    rows, files = dict(found.rows), found.files
    names = [name for whole in opened.manifest.wholes for node in whole.nodes for name in nodes[node]]
    lost = {name for name in names if name not in rows}
    if lost:
        raise BadSnapshot(missing(len(lost), files))
    foreign = [rows[name] for name in set(names) if files.notebooks.get(rows[name].pack) != notebook]
    with contextlib.ExitStack() as undo:
        copied = -1
        if foreign:
            copied, placed = packs.excerpt(_FOREIGN, foreign, files.names)
            undo.callback(os.close, copied)
            rows |= {row.name: row for row in placed}
        recipe = _recipe(packs, opened, nodes, rows, files, names, copied)
        undo.pop_all()
    return recipe


def _recipe(
    packs: Packs,
    opened: Opened,
    nodes: dict[bytes, list[bytes]],
    rows: dict[bytes, Row],
    files: Files,
    names: list[bytes],
    copied: int,
) -> Recipe:
    numbers = {pack: number for number, pack in enumerate(sorted({rows[name].pack for name in names}))}
    places = chunks.dump_places(
        (name, numbers[pack], offset, length, stored, compressed)
        for name, pack, offset, length, stored, compressed in map(rows.__getitem__, names)
    )
    counts = [sum(len(nodes[node]) for node in whole.nodes) for whole in opened.manifest.wholes]
    with contextlib.ExitStack() as undo:
        handles = []
        for pack in numbers:
            if pack == _FOREIGN:
                handles.append(copied)
                continue
            handles.append(packs.open(files.names[pack]))
            undo.callback(os.close, handles[-1])
        file = memory(chunks.dump_recipe(opened.said, counts, places))
        undo.pop_all()
    return Recipe(file=file, packs=tuple(handles))


def memory(data: bytes) -> int:
    """A file that is nowhere but in memory; where there is no such thing, one without a name."""
    file = os.memfd_create("recipe") if hasattr(os, "memfd_create") else _nameless()
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file


def _nameless() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Bases:
    """Recipes of snapshots that others will differ little from: they say which chunks there are, not where.

    What a node lists never changes, so it is remembered; that all of it is there the index says.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._bytes = 0

    async def recipe(self, snapshot: Snapshot) -> int:
        """Its file. Raises OperationFailed, BadSnapshot or OSError where the snapshot is not whole."""
        async with self._shelf.with_others():
            opened = await _opened(self._shelf, snapshot)
            files = await self._shelf.files()
            wanted = list(chain.from_iterable(whole.nodes for whole in opened.manifest.wholes))
            whole = {} if files.damaged else await self._shelf.index.sums(set(wanted))
            known = {node: self._known[node] for node in whole if node in self._known}
            there = await self._shelf.find(node for node in wanted if node not in known)
            for some in in_turn(list(there.rows.values())):
                known.update(await self._places(there.files, some))
        if any(node not in known for node in wanted):
            raise BadSnapshot("a list of its chunks is gone")
        for node in wanted:
            self._remember(node, *known[node])
        counts = [sum(known[node][0] for node in whole.nodes) for whole in opened.manifest.wholes]
        places = b"".join(known[node][1] for node in wanted)
        return await anyio.to_thread.run_sync(memory, chunks.dump_recipe(opened.said, counts, places))

    async def _places(self, files: Files, nodes: Sequence[Row]) -> dict[bytes, tuple[int, bytes]]:
        """How many chunks each node lists, and those; none for one that lacks any."""
        lists = await anyio.to_thread.run_sync(listed, self._shelf.packs, files.names, nodes)
        rows = (await self._shelf.find(chain.from_iterable(lists.values()))).rows
        return {
            node: (len(names), chunks.dump_places((name, 0, 0, *rows[name][3:]) for name in names))
            for node, names in lists.items()
            if all(name in rows for name in names)
        }

    def _remember(self, node: bytes, count: int, places: bytes) -> None:
        if node not in self._known:
            self._bytes += len(places)
        self._known[node] = (count, places)
        self._known.move_to_end(node)
        while self._bytes > _REMEMBERED:
            self._bytes -= len(self._known.popitem(last=False)[1][1])
