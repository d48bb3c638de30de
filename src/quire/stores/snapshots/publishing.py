"""From a draft to a snapshot: checked, appended, synced, and only then written down.

Nothing is written down before all of it is on disk. What is appended and not written down is cut off again: now, or
when the pack is next written to.
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
from quire.stores.snapshots.drafts import Drafted, Piece
from quire.stores.snapshots.index import Sealed
from quire.stores.snapshots.packs import Row, Tail
from quire.stores.snapshots.seal import signature
from quire.stores.snapshots.shelf import Shelf

_TURN = 16 << 20  # bytes copied before a cancelled caller is heard


async def publish(shelf: Shelf, draft: Draft, written: Written, run: RunId | None, name: str) -> Snapshot:
    """Raises BadSnapshot, OSError or OperationFailed."""
    async with shelf.with_others():
        drafted = await anyio.to_thread.run_sync(drafts.read, draft.file, written)
        known = (await shelf.find(each.name for each in drafted.entries)).rows
        async with _appending(shelf, draft.notebook) as added:
            turns = await anyio.to_thread.run_sync(_turns, drafted, known)
            await anyio.to_thread.run_sync(shelf.packs.make_room, sum(each.length for some in turns for each in some))
            for pieces in turns:
                await added.copy(draft.file, pieces)
            sums = await _checked(shelf, drafted.manifest.wholes, added)
            await added.sync()
            snapshot = _snapshot(drafted, draft.notebook, run, name, added.bytes)
            sealed = await anyio.to_thread.run_sync(_sealed, shelf.key, snapshot, drafted)
            with anyio.CancelScope(shield=True):  # a row that is still to be written may not outlive our turn
                await added.mark()
                rest = await shelf.index.keep(list(added.rows.values()))
                await shelf.index.publish(snapshot, sealed, rest, sums)
    return snapshot


def _turns(drafted: Drafted, known: dict[bytes, Row]) -> list[list[Piece]]:
    turns: list[list[Piece]] = []
    room = 0
    for piece in drafts.pieces(drafted.entries, known):
        if room <= 0:
            turns.append([])
            room = _TURN
        turns[-1].append(piece)
        room -= piece.length
    return turns


class _Appended:
    """The chunks a snapshot adds, and the packs they are appended to."""

    def __init__(self, shelf: Shelf, notebook: NotebookId) -> None:
        self._shelf = shelf
        self._notebook = notebook
        self._written_down = False
        self.rows: dict[bytes, Row] = {}
        self.tails: dict[int, Tail] = {}
        self._tail: Tail | None = None

    @property
    def bytes(self) -> int:
        return sum(tail.end - tail.begin for tail in self.tails.values())

    async def copy(self, file: int, pieces: list[Piece]) -> None:
        if self._tail is None or self._tail.end >= self._shelf.full:
            self._tail = await self._next()
        tail = self._tail
        rows = await anyio.to_thread.run_sync(lambda: [row for each in pieces for row in drafts.copy(file, each, tail)])
        self.rows.update((row.name, row) for row in rows)

    async def _next(self) -> Tail:
        """The notebook's pack that is not full; a new one where there is none, or another server writes to it."""
        for pack in await self._shelf.index.packs():
            if pack.full or pack.notebook != self._notebook or pack.id in self.tails:
                continue
            tail = await anyio.to_thread.run_sync(self._shelf.packs.tail, pack.file)
            if tail is None:
                continue
            if await self._started(tail, pack.id):
                return self._took(tail)
            tail.close()
        tail = await anyio.to_thread.run_sync(self._shelf.packs.create)
        try:
            tail.id = await self._shelf.index.begin_pack(self._notebook, tail.file)
        except BaseException:
            tail.close()
            raise
        return self._took(tail)

    async def _started(self, tail: Tail, pack: int) -> bool:
        try:
            now = next(
                each for each in await self._shelf.index.packs() if each.id == pack
            )  # as it is since we are alone
            return not now.full and await anyio.to_thread.run_sync(tail.start, pack, now.bytes)
        except BaseException:
            tail.close()
            raise

    def _took(self, tail: Tail) -> Tail:
        self.tails[tail.id] = tail
        return tail

    async def sync(self) -> None:
        for tail in self.tails.values():
            await anyio.to_thread.run_sync(tail.sync)

    async def mark(self) -> None:
        if self.tails:
            await self._shelf.index.mark_packs(
                (tail.id, tail.end, tail.end >= self._shelf.full) for tail in self.tails.values()
            )
        self._written_down = True  # whatever comes: rows may count on it now

    def close(self) -> None:
        for tail in self.tails.values():
            if not self._written_down:
                with contextlib.suppress(OSError):  # it is cut off the next time
                    tail.cut()
            tail.close()


@contextlib.asynccontextmanager
async def _appending(shelf: Shelf, notebook: NotebookId) -> AsyncIterator[_Appended]:
    added = _Appended(shelf, notebook)
    try:
        yield added
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(added.close)


async def _checked(shelf: Shelf, wholes: tuple[Whole, ...], added: _Appended) -> dict[bytes, int]:
    """That every node is there, lists chunks that are there, and wholes are as long as they say; raises BadSnapshot.
    Returns what the nodes sum up to that were not checked before."""
    nodes = set(chain.from_iterable(whole.nodes for whole in wholes))
    found = await shelf.find(nodes - added.rows.keys())
    there = found.rows | {name: added.rows[name] for name in nodes & added.rows.keys()}
    if len(there) < len(nodes):
        raise BadSnapshot("it names a list of chunks that is not there")
    if sum(there[node].length for whole in wholes for node in whole.nodes) > drafts.PLACES * chunks.DIGEST_BYTES:
        raise BadSnapshot("it has too many parts")
    before = {} if found.files.damaged else await shelf.index.sums(nodes - added.rows.keys())
    new: dict[bytes, int] = {}
    names = found.files.names | {tail.id: tail.file for tail in added.tails.values()}
    for some in recipes.in_turn([there[node] for node in nodes - before.keys()]):
        lists = await anyio.to_thread.run_sync(recipes.listed, shelf.packs, names, some)
        if len(lists) < len(some):
            raise BadSnapshot("a list of its chunks is none")
        wanted = set(chain.from_iterable(lists.values()))
        rows = (await shelf.find(wanted - added.rows.keys())).rows
        rows.update((name, added.rows[name]) for name in wanted & added.rows.keys())
        if len(rows) < len(wanted):
            raise BadSnapshot("it names a chunk that is not there")
        new.update((node, sum(rows[each].length for each in inside)) for node, inside in lists.items())
    sums = before | new
    if any(whole.length != sum(sums[node] for node in whole.nodes) for whole in wholes):
        raise BadSnapshot("its chunks do not add up to what it says")
    return new


def _snapshot(drafted: Drafted, notebook: NotebookId, run: RunId | None, name: str, added: int) -> Snapshot:
    return Snapshot(
        id=SnapshotId(uuid4().hex[:16]),
        notebook=notebook,
        run=run,
        name=name,
        created_at=time.time(),
        python=drafted.manifest.python.encode("utf-8", "replace").decode(),
        size=sum(whole.length for whole in drafted.manifest.wholes),
        added=added,
        seconds=drafted.about.seconds,
        variables=drafted.about.variables,
        functions=drafted.about.functions,
        lost=drafted.about.lost,
    )


def _sealed(key: bytes, snapshot: Snapshot, drafted: Drafted) -> Sealed:
    return Sealed(
        id=snapshot.id,
        notebook=snapshot.notebook,
        run=snapshot.run,
        format=drafted.manifest.format,
        signature=signature(key, snapshot.id, snapshot.notebook, snapshot.run, drafted.said),
        manifest=zlib.compress(drafted.said, 1),
    )
