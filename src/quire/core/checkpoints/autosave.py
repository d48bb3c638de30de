"""Writing namespaces down: after runs, when somebody asks, before a kernel sleeps, before the server ends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from quire.core.checkpoints import state_file
from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.errors import InvalidRequest, OperationFailed, QuireError
from quire.core.kernels.pool import KernelPool
from quire.core.limits.validation import check_name, check_states
from quire.core.model import LOCAL, Notebook, NotebookId, RunId, Snapshot, SnapshotId, Swept
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background
from quire.core.ports.capabilities import Installed
from quire.core.ports.kernel import Kernel
from quire.core.ports.snapshots import Snapshots
from quire.core.ports.store import Store

log = logging.getLogger(__name__)
_TRIES = 2  # a kernel may end while it is saved
_MOMENT = 0.2  # seconds after a change that somebody may go on at once
_REST = 4  # times as long as a snapshot took: nothing is written for so long after it
_AGAIN, _LATEST = 2.0, 300.0  # seconds until one that failed is tried again: doubled each time, up to this
_AT_ONCE = 8  # snapshots nobody asked for, of all notebooks: a few large ones must not keep the small ones waiting
_KEPT = 10  # snapshots of a notebook without a name that are kept
_SWEEP = 3600.0  # seconds between sweeps
_MUCH = 256 << 20  # bytes that dropped snapshots had added: they are swept at once
_BEGINNING = "beginning"  # the checkpoint of a kernel in which nothing has run


@dataclass(frozen=True, kw_only=True)
class AutosaveRules:
    interval: float  # seconds between two snapshots of a notebook that nobody asked for; 0 takes none
    most_bytes: int  # that one may describe, and that a notebook's may take on disk
    at_end: float  # seconds the server's end may take for it; 0 saves nothing then


@dataclass
class _Book:
    """How saving stands with one notebook."""

    notebook: Notebook
    following: bool = False  # it is looked after by a task
    changed: bool = False  # since that task last looked
    writing: anyio.Lock = field(default_factory=anyio.Lock)
    changed_at: float = float("-inf")
    begun_at: float = float("-inf")
    rests_until: float = float("-inf")
    failures: int = 0  # one after the other
    told: bool = False  # that it could not be saved


class Autosaver:
    def __init__(
        self,
        snapshots: Snapshots,
        store: Store,
        durable: SnapshotRestorer,
        kernels: KernelPool,
        feed: Feed,
        rules: AutosaveRules,
        installed: Installed,
    ) -> None:
        self._snapshots = snapshots
        self._store = store
        self._durable = durable
        self._kernels = kernels
        self._feed = feed
        self._rules = rules
        self._installed = installed
        self._books: dict[NotebookId, _Book] = {}
        self._group: TaskGroup | None = None
        self._dropped = 0  # bytes, about
        self._at_once = anyio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Snapshots are taken in here; leaving it saves what is not saved yet."""
        async with background() as self._group:
            self._group.start_soon(self._sweep_at_times)
            deaf = self._feed.listen(self._heard)
            try:
                yield
            finally:
                deaf()
                if self._rules.at_end:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(self._rules.at_end):
                        await self._save_all()

    async def save(self, notebook: Notebook, name: str) -> tuple[Snapshot, str]:
        """Write the state the namespace is in under a name, in place of what had it; and where a copy for people to
        read lies. Raises OperationFailed."""
        check_states(notebook)
        check_name(name, what="saved state")
        written = None
        for _ in range(_TRIES):
            async with self._kernels.lease(notebook) as lease:
                if lease.notice:
                    self._kernels.remember(notebook, lease.notice)
                if lease.line.head is None and notebook.origin is None:
                    raise InvalidRequest("No cell has run yet: there is nothing to save.")
            written = await self._write(notebook, name)
            if written is not None:
                break
        if written is None:
            raise OperationFailed("The kernel ended before its state was saved. Call again.")
        runs = await self._store.list_runs(notebook.id)
        capabilities = await self._installed.of(notebook.owner)
        text = state_file.dumps(notebook, written, runs, await self._snapshots.values(written), capabilities)
        book = notebook.name if notebook.owner == LOCAL else f"{notebook.owner}/{notebook.name}"
        return written, await self._snapshots.write_out(book, name, text)

    async def saved(self, notebook: Notebook) -> Snapshot | None:
        """A snapshot of exactly where the live namespace stands: there already, or taken now."""
        for _ in range(_TRIES):
            if not await self._has_state(notebook):
                return None
            written = await self._write(notebook)
            if written is not None:
                return written
        return None

    async def _has_state(self, notebook: Notebook) -> bool:
        """Whether a kernel lives whose namespace is to be written."""
        if notebook.document is not None:
            return False
        await self._kernels.wait_replaced(notebook)
        line = self._kernels.line(notebook)
        return line is not None and (line.head is not None or notebook.origin is not None)

    async def whole(self, notebook: Notebook) -> bool:
        """Whether all of a live namespace is on disk, and no thread or child process beside it would be lost."""
        snapshot = await self.saved(notebook)
        if snapshot is None:
            return False
        kernel, head, passing = await self._checkpoint(notebook)
        if kernel is None:
            return False
        census = kernel.checkpoints.get(head or _BEGINNING)
        if passing:
            kernel.forget(head or _BEGINNING)
        return snapshot.run == head and not snapshot.lost and census is not None and not census.lost

    async def sweep(self, *, dry: bool = False) -> Swept:
        """Let go of what no snapshot needs any more; with `dry` only say how much that is."""
        return await self._snapshots.sweep(dry=dry)

    # By itself

    def _heard(self, change: Change) -> None:
        if change.notebook.document is not None:
            return
        book = self._book(change.notebook)
        book.changed = True
        book.changed_at = anyio.current_time()
        if self._rules.interval and not book.following and self._group is not None:
            book.following = True
            self._group.start_soon(self._follow, book)

    def _book(self, notebook: Notebook) -> _Book:
        found = self._books.get(notebook.id)
        if found is None:
            found = self._books[notebook.id] = _Book(notebook)
        return found

    async def _follow(self, book: _Book) -> None:
        """Save until nothing has changed since."""
        try:
            while book.changed:
                await self._due(book)
                book.changed = False
                book.failures = 0 if await self._save_quietly(book) else book.failures + 1
                if book.failures:
                    book.changed = True  # the last state is not to stay unwritten
                    book.rests_until = anyio.current_time() + min(_AGAIN * 2**book.failures, _LATEST)
        finally:
            book.following = False

    async def _due(self, book: _Book) -> None:
        """Until the next one may be taken: a moment after the last change, so that a quick caller is not disturbed."""
        latest = anyio.current_time() + self._rules.interval
        while True:
            quiet = min(book.changed_at + _MOMENT, latest)
            left = max(book.begun_at + self._rules.interval, book.rests_until, quiet) - anyio.current_time()
            if left <= 0:
                return
            await anyio.sleep(left)

    async def _save_quietly(self, book: _Book) -> bool:
        """Whether that went well. A failure is told once, with the next answer; the last snapshot stands."""
        try:
            snapshot = await self.saved(book.notebook)
            book.told = False
            # none, though there is a state: its checkpoint was woken each time it was written
            return snapshot is not None or not await self._has_state(book.notebook)
        except QuireError as error:
            if self._kernels.live(book.notebook) is not None and not book.told:
                book.told = True
                sentence = f"The namespace is not on disk as it is now: {error}"
                self._kernels.remember(book.notebook, sentence)
                log.warning("notebook %r: %s", book.notebook.name, sentence)  # the server's end has no next answer
        except Exception:
            log.exception("saving notebook %r", book.notebook.name)
        return False

    async def _save_all(self) -> None:
        async with anyio.create_task_group() as group:
            for book in list(self._books.values()):
                group.start_soon(self._save_quietly, book)

    # Writing one

    async def _write(self, notebook: Notebook, name: str = "") -> Snapshot | None:
        """One at a time of a notebook, and none twice without a name; None where its kernel is gone."""
        book = self._book(notebook)
        async with book.writing:
            line = self._kernels.line(notebook)
            for each in await self._durable.of(notebook):
                if not name and line is not None and each.run == line.head:
                    return each
            book.begun_at = anyio.current_time()
            try:
                return await self._written(notebook, name)
            finally:
                book.rests_until = anyio.current_time() + _REST * (anyio.current_time() - book.begun_at)

    async def _written(self, notebook: Notebook, name: str) -> Snapshot | None:
        kernel, head, passing = await self._checkpoint(notebook)
        if kernel is None:
            return None
        mark, resets = head or _BEGINNING, self._kernels.resets(notebook)
        try:
            async with contextlib.nullcontext() if name else self._at_once:
                snapshot = await self._drafted(notebook, kernel, head, name)
        except OperationFailed:
            if self._kernels.live(notebook) is kernel and mark in kernel.checkpoints:
                raise
            return None  # it ended meanwhile, or went back to there
        finally:
            if passing:
                kernel.forget(mark)
        if self._kernels.resets(notebook) != resets and not name:
            await self._snapshots.drop([snapshot.id])  # what it holds was given up meanwhile
            return None
        await self._thin_out(notebook)
        return snapshot

    async def _drafted(self, notebook: Notebook, kernel: Kernel, head: RunId | None, name: str) -> Snapshot:
        base = await self._base(notebook, head)
        of = (base.run or _BEGINNING) if base is not None else ""
        draft = await self._snapshots.begin(notebook.id, base)
        try:
            written = await kernel.write(
                head or _BEGINNING, draft, base=of, limit=self._rules.most_bytes, values=bool(name)
            )
            return await self._snapshots.publish(draft, written, run=head, name=name)
        finally:
            self._snapshots.abandon(draft)

    async def _checkpoint(self, notebook: Notebook) -> tuple[Kernel | None, RunId | None, bool]:
        """The kernel with a checkpoint of where it stands, that run, and whether the checkpoint is to go afterwards.

        Where there is one already it is taken as it is, even while the next cell runs.
        """
        kernel, line = self._kernels.live(notebook), self._kernels.line(notebook)
        if kernel is not None and line is not None and line.head is not None and line.head in kernel.checkpoints:
            return kernel, line.head, False
        async with self._kernels.turn(notebook, asked=False) as slot:
            await self._kernels.settle(notebook, slot)
            kernel, head = slot.kernel, slot.line.head
            if kernel is None or (head is None and notebook.origin is None):
                return None, None, False
            if head is not None and head in kernel.checkpoints:
                return kernel, head, False
            taken = await kernel.checkpoint(head or _BEGINNING)
            if isinstance(taken, str):
                raise OperationFailed(f"There is no checkpoint to write, {taken}. The last snapshot stands.")
            keeps = head is not None and self._kernels.spec(notebook).checkpoint_bytes > 0
            if keeps:
                slot.line.protected(taken)
            return kernel, head, not keeps

    async def _base(self, notebook: Notebook, head: RunId | None) -> Snapshot | None:
        """The snapshot it differs least from: the newest on the way there."""
        line = self._kernels.line(notebook)
        way = [None, *reversed(line.way(head))] if line is not None else [None]
        found = {each.run: each for each in await self._durable.of(notebook)}
        return next((found[run] for run in reversed(way) if run in found), None)

    async def _thin_out(self, notebook: Notebook) -> None:
        """Drop the oldest without a name, where there are too many or they take too much."""
        every = await self._durable.of(notebook)
        unnamed = [each for each in every if not each.name]
        taken = sum(each.added for each in every)
        going: list[SnapshotId] = []
        for each in unnamed[:-1]:
            if len(unnamed) - len(going) > _KEPT or taken > self._rules.most_bytes:
                going.append(each.id)
                taken -= each.added
                self._dropped += each.added
        if going:
            await self._snapshots.drop(going)
        if self._dropped > _MUCH:
            await self._sweep()

    async def _sweep(self) -> None:
        """Let go of what no snapshot needs any more."""
        self._dropped = 0
        try:
            await self.sweep()
        except QuireError as error:
            log.warning("sweeping snapshots: %s", error)

    async def _sweep_at_times(self) -> None:
        """Runs until cancelled."""
        while True:
            await anyio.sleep(_SWEEP)
            await self._sweep()
