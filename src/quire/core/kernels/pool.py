"""Kernels: one for each notebook that runs code, lent to one caller at a time, protected and recovered."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from quire.core.checkpoints.restore_report import describe_restore
from quire.core.checkpoints.restorer import RestoredState, SnapshotRestorer
from quire.core.errors import NotebookLocked, OperationFailed
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.slot import KernelLease, KernelSlot, RecoveryResult
from quire.core.model import Cell, ForkReport, KernelSpec, Notebook, NotebookId, RunId, RuntimeInfo, Snapshot
from quire.core.ports.kernel import START, Kernel, Runtime
from quire.core.ports.store import Store
from quire.core.runs.outcome import revived

_TURNS = 8  # of the event loop, in which the answer to a run goes out before its checkpoint is begun
_ROOT = "root"  # a checkpoint that another kernel begins with


@dataclass(frozen=True, kw_only=True)
class KernelRules:
    restore: bool = True  # from disk, where there is none
    replay: str = "ask"  # cells that make what did not come back: never, ask (name them), always


@dataclass(frozen=True, kw_only=True)
class KernelStatus:
    """A kernel there is, and how it stands."""

    notebook: Notebook
    kernel: Kernel
    named: frozenset[str]  # checkpoints people gave a name
    idle: float | None  # seconds since somebody used it; None while somebody does

    @property
    def id(self) -> NotebookId:
        return self.notebook.id


class KernelPool:
    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        store: Store,
        spec: Callable[[Notebook], KernelSpec],
        rules: KernelRules,
        durable: SnapshotRestorer | None,
    ) -> None:
        self._runtimes = runtimes
        self._store = store
        self.spec = spec
        self._rules = rules
        self._durable = durable  # None where nothing is kept
        self._slots: dict[NotebookId, KernelSlot] = {}
        self.one_more: Callable[[Notebook], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
        """Has room for a kernel while the block starts it, or raises OverLimit (core/kernels/admission.py)."""

    @asynccontextmanager
    async def lease(
        self, notebook: Notebook, first: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[KernelLease]:
        """This notebook's kernel, started where there is none, for as long as the block lasts. `first` is awaited when
        the turn has come.

        Leaving it takes a checkpoint, if a run moved the namespace: whoever waits for the run's outcome has it by then.
        A dear one, or one of many, waits until nobody is in a hurry.
        """
        async with self.turn(notebook) as slot:
            if first is not None:
                await first()
            slot.line.used(anyio.current_time() - slot.used_at)
            try:
                await self.settle(notebook, slot)
                notice, again = await self.ensure(notebook, slot)
                if slot.line.bare and notebook.policy.on_error == "rollback":  # loaded from disk just now
                    await self._protect(notebook, slot)
                assert slot.kernel is not None
                yield KernelLease(
                    notebook=notebook,
                    kernel=slot.kernel,
                    line=slot.line,
                    notice=notice,
                    again=tuple(again),
                    durable=self._durable,
                )
            finally:
                slot.waiting -= 1
            try:
                patience = slot.line.patience() if self._lacks_checkpoint(notebook, slot) else 0.0
                for _ in range(0 if patience else _TURNS):
                    await anyio.lowlevel.checkpoint()
                if not patience:
                    await self._protect(notebook, slot)
            finally:
                slot.waiting += 1
        if patience and await slot.undisturbed(patience):  # the turn is free: the next run begins at once
            async with slot.turn:
                if not slot.waiting:
                    await self._protect(notebook, slot)

    @asynccontextmanager
    async def turn(self, notebook: Notebook, *, asked: bool = True) -> AsyncIterator[KernelSlot]:
        """The notebook's kernel, or none, to oneself; `asked` by a caller, for whom it is busy meanwhile."""
        slot = self._slot(notebook)
        slot.waiting += asked
        if asked:
            slot.wanted.set()
        try:
            async with slot.turn:
                try:
                    yield slot
                finally:
                    if asked:
                        slot.used_at = anyio.current_time()
        finally:
            slot.waiting -= asked

    def _slot(self, notebook: Notebook) -> KernelSlot:
        found = self._slots.get(notebook.id)
        if found is None:
            found = self._slots[notebook.id] = KernelSlot(notebook)
        return found

    def busy(self, notebook: Notebook) -> bool:
        slot = self._slots.get(notebook.id)
        return slot is not None and slot.waiting > 0

    def live(self, notebook: Notebook) -> Kernel | None:
        """The kernel there is, if any; not to be run on without a lease."""
        slot = self._slots.get(notebook.id)
        return slot.kernel if slot is not None and slot.kernel is not None and slot.kernel.alive else None

    def count(self) -> tuple[int, int, int]:
        """Kernels that live, checkpoints they hold, and kernels that are kept ready."""
        live = [slot.kernel for slot in self._slots.values() if slot.kernel is not None and slot.kernel.alive]
        spares = sum(runtime.spares for runtime in self._runtimes.values())
        return len(live), sum(len(kernel.checkpoints) for kernel in live), spares

    async def ready(self) -> None:
        """Wait until a kernel could be started at once. Raises OperationFailed."""
        for runtime in self._runtimes.values():
            await runtime.ready()

    def line(self, notebook: Notebook) -> RunLineage | None:
        """Where the live namespace stands; None where there is none."""
        return self._slots[notebook.id].line if self.live(notebook) is not None else None

    async def wait_replaced(self, notebook: Notebook) -> None:
        """If the kernel's process has ended, wait until another takes its place."""
        await self._slot(notebook).wait_replaced()

    def held(self, notebook: Notebook) -> bool:
        """Reserve the notebook for this process; False where another one has it."""
        return self.live(notebook) is not None or self.busy(notebook) or self._store.hold(notebook.id)

    def hurry(self, notebook: Notebook) -> None:
        """Runs follow each other from now on: a short one need not be followed by a checkpoint of its own."""
        self._slot(notebook).line.hurried()

    def remember(self, notebook: Notebook, notice: str) -> None:
        """To be said with the next answer, since this one has no place for it."""
        slot = self._slot(notebook)
        slot.notice = " ".join(filter(None, (slot.notice, notice)))

    def lost(self, notebook: Notebook, why: str) -> None:
        """Remember why the kernel is gone, for the one who comes next."""
        self._slot(notebook).gone = why

    async def end(self, notebook: Notebook) -> None:
        """A clean namespace: wait for the turn, end the kernel; nothing is said to be lost. On disk only states with a
        name stay."""
        async with self.turn(notebook) as slot:
            if notebook.document is not None:  # it may be another's, whom it would go on for
                await self.ensure(notebook, slot)
                assert slot.kernel is not None
                await slot.kernel.restore(START)
            await self._end(notebook.id, slot)
            slot.gone = "reset"
            slot.resets += 1
            if self._durable is not None:
                await self._durable.give_up(notebook)

    async def forget(self, notebook: Notebook) -> None:
        """The notebook is to be deleted: wait for the turn, end the kernel, keep no place for it."""
        async with self.turn(notebook) as slot:
            await self._end(notebook.id, slot)
        self._slots.pop(notebook.id, None)

    async def runtimes(self) -> list[RuntimeInfo]:
        return [await self.about(name) for name in self._runtimes]

    async def about(self, runtime: str) -> RuntimeInfo:
        """The runtime as it stands here."""
        if runtime not in self._runtimes:
            return RuntimeInfo(name=runtime, why_not="no kernels are started here")
        return await self._runtimes[runtime].about()

    def resets(self, notebook: Notebook) -> int:
        """How often its namespace was given up on purpose."""
        return self._slot(notebook).resets

    async def begun_with(self, notebook: Notebook, snapshot: Snapshot) -> Kernel:
        """A kernel for a new notebook that begins with a snapshot."""
        assert self._durable is not None
        kernel = await self._runtimes[notebook.runtime].start(self.spec(notebook))  # whoever calls has room for it
        try:
            await self._durable.load(notebook, kernel, snapshot)
            return await self._rooted(notebook, kernel)
        except BaseException:
            await kernel.close()
            raise

    def named(self, notebook: Notebook) -> dict[str, RunId]:
        """Checkpoints people gave a name, by that name."""
        return dict(self._slot(notebook).named)

    def place(self, notebook: Notebook, kernel: Kernel, start: ForkReport) -> None:
        """Give a new notebook a kernel that is there already."""
        self._store.hold(notebook.id)
        line = RunLineage(start=start)
        self._slots[notebook.id] = KernelSlot(notebook, kernel=kernel, line=line, used_at=anyio.current_time())

    async def protect(self, notebook: Notebook) -> None:
        """Take a checkpoint of where the namespace stands, in its turn."""
        async with self.turn(notebook, asked=False) as slot:
            await self._protect(notebook, slot)

    def standing(self) -> list[KernelStatus]:
        """The kernels there are."""
        now = anyio.current_time()
        return [
            KernelStatus(
                notebook=slot.notebook,
                kernel=slot.kernel,
                named=frozenset(slot.named.values()),
                idle=None if slot.waiting else now - slot.used_at,
            )
            for slot in self._slots.values()
            if slot.kernel is not None
        ]

    def idle(self) -> list[tuple[Notebook, float]]:
        """Notebooks with a kernel nobody wants, and for how many seconds."""
        return [(each.notebook, each.idle) for each in self.standing() if each.idle is not None]

    async def put_away(self, notebook: Notebook, head: RunId | None, why: str) -> None:
        """End a kernel that nobody uses; not if somebody came and it stands elsewhere by now."""
        async with self.turn(notebook, asked=False) as slot:
            if not slot.waiting and slot.line.head == head:
                await self._end(notebook.id, slot)
                slot.gone = why

    async def close(self) -> None:
        async with anyio.create_task_group() as group:
            for id_, slot in self._slots.items():
                group.start_soon(self._end, id_, slot)

    async def ensure(self, notebook: Notebook, slot: KernelSlot) -> tuple[str, list[Cell]]:
        """Have a live kernel in the slot; what must be said about it, and which cells are to be run again for it."""
        await self.revive(notebook, slot)
        notice, slot.notice = slot.notice, ""
        if slot.kernel is not None:
            return notice, []
        gone = slot.gone
        empty = gone == "reset" or not (notebook.runs or notebook.origin)
        try:
            back, damaged = await self._begin(notebook, slot, empty=empty)
        except OperationFailed:  # it may have been killed as it began
            back, damaged = await self._begin(notebook, slot, empty=empty)
        slot.gone = ""
        if empty or (slot.kernel is not None and not slot.kernel.fresh):
            return notice, []
        if back is not None:
            again = back.again if self._rules.replay == "always" else []
            return " ".join(filter(None, (notice, describe_restore(back, self._rules.replay)))), again
        why = gone or ("the document had none" if notebook.document else "the server was started anew since")
        fresh = f"This is a fresh kernel: {why}. Variables of earlier cells are gone; run those cells again."
        return " ".join(filter(None, (notice, *damaged, fresh))), []

    async def _begin(
        self, notebook: Notebook, slot: KernelSlot, *, empty: bool
    ) -> tuple[RestoredState | None, list[str]]:
        """Start a kernel, and unless it is to be empty bring back what was saved last."""
        if not self._store.hold(notebook.id):
            raise NotebookLocked(notebook.name)
        try:
            async with self.one_more(notebook):
                slot.kernel = await self._runtimes[notebook.runtime].start(self.spec(notebook))
            slot.used_at = math.inf
            return (None, []) if empty else await self._bring_back(notebook, slot)
        except BaseException:
            await self._end(notebook.id, slot)
            self._store.release(notebook.id)
            raise

    async def _bring_back(self, notebook: Notebook, slot: KernelSlot) -> tuple[RestoredState | None, list[str]]:
        """Load what was saved last into a kernel just begun."""
        if self._durable is None or not self._rules.restore:
            return None, []
        assert slot.kernel is not None
        back, damaged = await self._durable.bring_back(notebook, slot.kernel)
        if not slot.kernel.alive:
            raise OperationFailed("The kernel ended as it began. Call again.")
        if back is not None:
            slot.line = back.line
            with contextlib.suppress(OperationFailed):  # a full disk: the answer names them all the same
                marks = {cell.run.id: True for cell in back.after if cell.run is not None}
                await self._store.mark_stale(notebook.id, marks)
            if back.line.head is None:
                slot.kernel = await self._rooted(notebook, slot.kernel)
        return back, damaged

    async def _rooted(self, notebook: Notebook, kernel: Kernel) -> Kernel:
        """A kernel that begins with what this one holds, and takes its place."""
        taken = await kernel.checkpoint(_ROOT)
        if isinstance(taken, str):
            return kernel
        rooted = await kernel.branch(_ROOT, self.spec(notebook))
        await kernel.close()
        return rooted

    async def settle(self, notebook: Notebook, slot: KernelSlot) -> None:
        """Have the kernel live, and a checkpoint of where it stands if that was used up."""
        await self.revive(notebook, slot)
        if slot.line.bare:
            await self._protect(notebook, slot)

    async def revive(self, notebook: Notebook, slot: KernelSlot) -> RecoveryResult | None:
        """Restore a kernel whose process died, or end it for good; None where it lives, or there is none."""
        if slot.kernel is None or slot.kernel.alive:
            return None
        lease = KernelLease(notebook=notebook, kernel=slot.kernel, line=slot.line, durable=self._durable)
        recovered = await lease.recover()
        if not recovered.restored:
            slot.gone = slot.gone or "the process that kept it was ended"
            await self._end(notebook.id, slot)
        else:
            cells = await self.left_behind(notebook, slot.line, recovered)
            slot.notice = revived(recovered, cells)
        return recovered

    async def left_behind(self, notebook: Notebook, line: RunLineage, recovered: RecoveryResult) -> list[int]:
        """Mark the runs that were lost in a recovery; the numbers of their cells."""
        if not recovered.lost:
            return []
        with contextlib.suppress(OperationFailed):  # a full disk: the answer names them all the same
            await self._store.mark_stale(notebook.id, dict.fromkeys(recovered.lost, True))
        cells = [await self._store.find_cell(notebook.id, line.steps[run].cell) for run in recovered.lost]
        if notebook.document is not None and not notebook.document.path:  # code without cells
            return []
        return sorted({cell.number for cell in cells if cell is not None})

    def _lacks_checkpoint(self, notebook: Notebook, slot: KernelSlot) -> bool:
        policy = notebook.policy
        if not slot.is_unprotected or policy.isolation == "cell" or policy.on_error != "keep":
            return slot.is_unprotected
        if not self.spec(notebook).checkpoint_bytes:
            slot.line.why = "checkpoints are turned off by the setting checkpoint_bytes"
            return False
        return True

    async def _protect(self, notebook: Notebook, slot: KernelSlot) -> None:
        """A checkpoint of where the namespace stands now."""
        await self.revive(notebook, slot)
        kernel, line = slot.kernel, slot.line
        line.bare = False
        if not self._lacks_checkpoint(notebook, slot):
            return
        assert kernel is not None and line.head is not None
        taken = await kernel.checkpoint(line.head)
        if isinstance(taken, str):
            line.why = taken
        else:
            line.protected(taken)
            await kernel.thin_out(set(slot.named.values()))
            if notebook.policy.isolation == "cell":  # the next cell's process comes of the checkpoint, as after a crash
                await kernel.kill()
                await KernelLease(notebook=notebook, kernel=kernel, line=line).recover()
                await self._protect_anew(kernel, line)
        await self.revive(notebook, slot)

    async def _protect_anew(self, kernel: Kernel, line: RunLineage) -> None:
        line.bare = False
        taken = await kernel.checkpoint(line.head) if line.head is not None else 0.0
        line.why = taken if isinstance(taken, str) else ""

    async def _end(self, id_: NotebookId, slot: KernelSlot) -> None:
        kernel, slot.kernel = slot.kernel, None
        slot.line = RunLineage()
        slot.named = {}
        if kernel is not None:
            with anyio.CancelScope(shield=True):
                await kernel.close()
            self._store.release(id_)
