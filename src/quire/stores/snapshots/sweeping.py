"""Letting go of chunks that no snapshot names: rows first, then packs without any, then packs that are mostly holes.

What is named is found while others publish. Then, alone, what came meanwhile is added and the rest is dropped: nobody
counts on a chunk at that moment. Packs are copied with others again, since full ones never change.
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
from quire.stores.snapshots.packs import Pack, Packs, Row, Tail
from quire.stores.snapshots.shelf import Shelf

_TURN = 128  # chunks copied at once


async def sweep(shelf: Shelf, *, dry: bool) -> Swept:
    async with shelf.sweeping():
        if await shelf.index.newest_format() > chunks.FORMAT:
            raise OperationFailed("A newer Quire wrote snapshots here: nothing was swept. Upgrade.")
        named = _Named(shelf)
        await named.mark()
        async with shelf.alone():
            await named.mark()
            found = await _scan(shelf, named.chunks)
            if dry:
                return Swept(freed=found.freed, chunks=len(found.dead), kept=found.kept)
            with anyio.CancelScope(shield=True):  # a row that is still to be dropped may not outlive our turn
                if not named.all_read:
                    await shelf.index.distrust()
                freed = await _drop(shelf, found)
        with contextlib.suppress(OSError):  # no space to move to: what is freed is freed
            for some in _groups(found.holey, found.live, shelf.full):
                freed += await _rewrite(shelf, some)
        left = await shelf.files()
    return Swept(freed=freed, chunks=len(found.dead), kept=sum(left.sizes.values()))


class _Named:
    """The names of all chunks and nodes that snapshots name."""

    def __init__(self, shelf: Shelf) -> None:
        self.chunks: set[bytes] = set()
        self.all_read = True  # or a snapshot is damaged, and what it names is not known
        self._shelf = shelf
        self._marked: set[str] = set()
        self._nodes: set[bytes] = set()

    async def mark(self) -> None:
        """Those of snapshots that were not there the last time."""
        for snapshot in await self._shelf.index.ids():
            if snapshot in self._marked:
                continue
            self._marked.add(snapshot)
            sealed = await self._shelf.index.sealed(snapshot)
            if sealed is None:
                continue
            try:
                manifest = chunks.parse_manifest(await anyio.to_thread.run_sync(recipes.manifest_of, sealed))
            except BadSnapshot:
                continue  # nobody will ever read it
            nodes = {node for whole in manifest.wholes for node in whole.nodes} - self._nodes
            self._nodes |= nodes
            self.chunks |= nodes
            found = await self._shelf.find(nodes)
            self.all_read &= len(found.rows) == len(nodes)
            for some in recipes.in_turn(list(found.rows.values())):
                lists = await anyio.to_thread.run_sync(recipes.listed, self._shelf.packs, found.files.names, some)
                self.chunks.update(*lists.values())
                self.all_read &= len(lists) == len(some)


@dataclass(frozen=True, kw_only=True)
class _Found:
    dead: Sequence[bytes]  # chunks, nodes first
    packs: Sequence[Pack]
    live: dict[int, int]  # bytes in each pack that are named
    sizes: dict[int, int]
    stray: frozenset[str]  # files a crash left

    @property
    def empty(self) -> list[Pack]:
        return [pack for pack in self.packs if not self.live.get(pack.id)]

    @property
    def holey(self) -> list[Pack]:
        """More than half of it is nothing."""
        return [pack for pack in self.packs if 0 < 2 * self.live.get(pack.id, 0) < self.sizes.get(pack.id, 0)]

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    @property
    def freed(self) -> int:
        return sum(self.sizes.get(pack.id, 0) - self.live.get(pack.id, 0) for pack in (*self.empty, *self.holey))

    @property
    def kept(self) -> int:
        return self.total - self.freed


async def _scan(shelf: Shelf, named: set[bytes]) -> _Found:
    nodes: list[bytes] = []
    leaves: list[bytes] = []
    live: dict[int, int] = {}
    last = b""
    while rows := await shelf.index.after(last):
        for name, pack, stored, checked in rows:
            if name in named:
                live[pack] = live.get(pack, 0) + stored
            else:
                (nodes if checked else leaves).append(name)
        last = rows[-1][0]
    there = await shelf.index.packs()
    return _Found(
        dead=nodes + leaves,  # a checked node promises its leaves: it goes first
        packs=there,
        live=live,
        sizes=await anyio.to_thread.run_sync(shelf.packs.sizes, there),
        stray=frozenset(await anyio.to_thread.run_sync(shelf.packs.files) - {pack.file for pack in there}),
    )


async def _drop(shelf: Shelf, found: _Found) -> int:
    """How many bytes that freed."""
    await shelf.index.forget(found.dead)
    await shelf.index.drop_packs(pack.id for pack in found.empty)
    await shelf.index.mark_packs((pack.id, pack.bytes, True) for pack in found.holey)
    return await anyio.to_thread.run_sync(shelf.packs.remove, [*(pack.file for pack in found.empty), *found.stray])


def _groups(holey: Iterable[Pack], live: dict[int, int], full: int) -> Iterator[list[Pack]]:
    """A notebook's packs, so many as make one."""
    group: list[Pack] = []
    room = 0
    for pack in sorted(holey, key=lambda each: (each.notebook, each.id)):
        if group and (pack.notebook != group[0].notebook or live[pack.id] > room):
            yield group
            group = []
        if not group:
            room = full
        group.append(pack)
        room -= live[pack.id]
    if group:
        yield group


async def _rewrite(shelf: Shelf, old: Sequence[Pack]) -> int:
    """Copy what lives in them to one new pack, and put that in their place; how many bytes that freed."""
    rows = [row for pack in old for row in await shelf.index.within(pack.id)]
    files = {pack.id: pack.file for pack in old}
    tail = await anyio.to_thread.run_sync(shelf.packs.create)
    done = False
    try:
        tail.id = await shelf.index.begin_pack(old[0].notebook, tail.file)
        moved: list[tuple[Row, Row]] = []
        for at in range(0, len(rows), _TURN):
            moved += await anyio.to_thread.run_sync(_copy, shelf.packs, files, rows[at : at + _TURN], tail)
        await anyio.to_thread.run_sync(tail.sync)
        async with shelf.alone():
            with anyio.CancelScope(shield=True):
                done = True
                await shelf.index.mark_packs([(tail.id, tail.end, True)])
                await shelf.index.move(moved)
                lost = {row.name for row in rows} - {row.name for row, _ in moved}
                if lost:  # damaged: better written anew than found and not read
                    await shelf.index.distrust()
                    await shelf.index.forget(list(lost))
                await shelf.index.drop_packs(files)
                freed = await anyio.to_thread.run_sync(shelf.packs.remove, list(files.values())) - tail.end
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_finish, tail, done)
    return freed


def _copy(there: Packs, files: dict[int, str], rows: Sequence[Row], tail: Tail) -> list[tuple[Row, Row]]:
    moved = []
    for row, stored in there.stored(rows, files):
        if stored is not None:
            moved.append((row, row._replace(pack=tail.id, offset=tail.end)))
            tail.append(stored)
    return moved


def _finish(tail: Tail, done: bool) -> None:
    if not done:
        with contextlib.suppress(OSError):
            tail.cut()
    tail.close()
