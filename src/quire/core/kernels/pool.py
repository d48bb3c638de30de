"""Lend kernels: one for each notebook, to one request at a time, started or restored first if needed."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from quire.core.checkpoints.checkpointer import Checkpointer
from quire.core.checkpoints.restore_report import describe_restore
from quire.core.checkpoints.restorer import RestoredState, SnapshotRestorer
from quire.core.errors import InvalidRequest, NotebookLocked, OperationFailed, QuireError
from quire.core.kernels.admission import KernelAdmission
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.recovery import KernelRecovery
from quire.core.kernels.runtimes import Runtimes
from quire.core.kernels.slot import KernelSlot, RecoveryResult
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Cell, Notebook, Snapshot
from quire.core.ports.kernel import START, Kernel

log = logging.getLogger(__name__)
_ANSWER_TURNS = 8  # of the event loop, in which the answer to a run goes out before its checkpoint is taken
_ROOT = "root"  # a checkpoint that another kernel starts from
_START_AHEAD_S = 1.0  # that a new session waits for its kernel


@dataclass(frozen=True, kw_only=True)
class KernelRules:
    restore: bool = True  # a new kernel from the latest snapshot
    replay: str = "ask"  # cells that make what was not restored: never, ask (name them), always


@dataclass(frozen=True, kw_only=True)
class KernelLease:
    """A kernel for one request."""

    kernel: Kernel
    lineage: RunLineage
    slot: KernelSlot
    recovery: KernelRecovery
    notice: str = ""  # for the answer: what was restored, or what a fresh kernel does not have
    replay: tuple[Cell, ...] = ()  # cells to run first, because they make what was not restored

    @property
    def is_protected(self) -> bool:
        """Whether there is a checkpoint of exactly the state before the run."""
        return not self.lineage.nearest_checkpoint(self.kernel.checkpoints)[1]

    async def recover(self, reason: str) -> RecoveryResult:
        """Put the state back to before the run. `reason` tells the next request why the kernel ended, if it did."""
        recovered = await self.recovery.recover(self.slot, self.kernel)
        if not recovered.restored:
            self.slot.end_reason = reason
        return recovered


class KernelPool:
    def __init__(
        self,
        slots: KernelSlots,
        runtimes: Runtimes,
        checkpointer: Checkpointer,
        recovery: KernelRecovery,
        restorer: SnapshotRestorer | None,
        admission: KernelAdmission,
        rules: KernelRules,
    ) -> None:
        """`restorer` is None if nothing is kept on disk."""
        self.slots = slots
        self.runtimes = runtimes
        self._checkpointer = checkpointer
        self._recovery = recovery
        self._restorer = restorer
        self._admission = admission
        self._rules = rules

    @asynccontextmanager
    async def lease(
        self, notebook: Notebook, on_turn: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[KernelLease]:
        """Lend the notebook's kernel for the block; start it if needed. `on_turn` is awaited first, under the lock.

        If a run changed the namespace, a checkpoint is taken after the block, when the caller has its answer. An
        expensive one, or one in a burst of runs, waits for a pause between requests.
        """
        async with self.slots.lock(notebook) as slot:
            if on_turn is not None:
                await on_turn()
            slot.lineage.count_request(anyio.current_time() - slot.used_at)
            yield await self._lend(slot)
            slot.request_count -= 1  # not busy while the checkpoint is taken
            try:
                delay = self._checkpointer.delay(slot)
                if not delay:
                    for _ in range(_ANSWER_TURNS):
                        await anyio.lowlevel.checkpoint()
                    await self._checkpointer.take(slot)
            finally:
                slot.request_count += 1
        if delay and await slot.wait_idle(delay):  # without the lock: the next run starts at once
            async with slot.lock:
                if not slot.request_count:
                    await self._checkpointer.take(slot)

    async def _lend(self, slot: KernelSlot) -> KernelLease:
        await self._checkpointer.prepare(slot)
        notice, replay = await self.ensure(slot)
        if slot.lineage.lacks_base and slot.notebook.policy.on_error == "rollback":  # just loaded from disk
            await self._checkpointer.take(slot)
        assert slot.kernel is not None
        return KernelLease(
            kernel=slot.kernel,
            lineage=slot.lineage,
            slot=slot,
            recovery=self._recovery,
            notice=notice,
            replay=tuple(replay),
        )

    async def start_ahead(self, notebook: Notebook, group: TaskGroup) -> None:
        """Start the kernel before the first run. Returns when it lives, or after a second, and goes on in `group`."""
        started = anyio.Event()
        group.start_soon(self._start_ahead, notebook, started)
        with anyio.move_on_after(_START_AHEAD_S):
            await started.wait()

    async def _start_ahead(self, notebook: Notebook, started: anyio.Event) -> None:
        try:
            async with self.slots.lock(notebook) as slot:
                await self.ensure(slot)
        except QuireError:  # the first run raises it
            log.info("a kernel of notebook %r could not be started ahead", notebook.name, exc_info=True)
        finally:
            started.set()

    async def reset(self, notebook: Notebook) -> None:
        """Wait for the lock, end the kernel and drop its state. Only named snapshots stay on disk."""
        async with self.slots.lock(notebook) as slot:
            if notebook.document is not None:  # its kernel may be shared, and would go on for others
                await self.ensure(slot)
                assert slot.kernel is not None
                await slot.kernel.restore(START)
            await self.slots.close_kernel(slot)
            slot.end_reason = "reset"
            slot.reset_count += 1
            if self._restorer is not None:
                await self._restorer.discard_state(notebook)

    async def start_from_snapshot(self, notebook: Notebook, snapshot: Snapshot) -> Kernel:
        """Start a kernel for a new notebook with the state of a snapshot. The caller has reserved its admission."""
        assert self._restorer is not None
        kernel = await self.runtimes.start(notebook)
        try:
            await self._restorer.load(notebook, kernel, snapshot)
            return await self._replace_root(notebook, kernel)
        except BaseException:
            await kernel.close()
            raise

    def count(self) -> tuple[int, int, int]:
        """Live kernels, checkpoints that they hold, and spare kernels."""
        live = [status.kernel for status in self.slots.list_live() if status.kernel.alive]
        return len(live), sum(len(kernel.checkpoints) for kernel in live), self.runtimes.spare_count

    async def ensure_with_history(self, slot: KernelSlot) -> Kernel:
        """A live kernel that has an earlier state to go to. Raises InvalidRequest without an earlier state."""
        await self._checkpointer.prepare(slot)
        if slot.kernel is None and not (self._restorer and await self._restorer.list_snapshots(slot.notebook)):
            raise InvalidRequest(
                f"Notebook {slot.notebook.name!r} has no live kernel and no state on disk, so there is no earlier "
                "state of it to go to. Run its cells again."
            )
        slot.notice, _ = await self.ensure(slot)
        assert slot.kernel is not None
        return slot.kernel

    async def ensure(self, slot: KernelSlot) -> tuple[str, list[Cell]]:
        """Have a live kernel in the slot. Returns the notice for the answer, and the cells to run again."""
        await self._recovery.revive(slot)
        notice, slot.notice = slot.notice, ""
        if slot.kernel is not None:
            return notice, []
        notebook, reason = slot.notebook, slot.end_reason
        has_state = reason != "reset" and bool(notebook.runs or notebook.origin)
        try:
            state, damaged = await self._start(slot, restore=has_state)
        except OperationFailed:  # it may have been killed while it started
            state, damaged = await self._start(slot, restore=has_state)
        slot.end_reason = ""
        if not has_state or (slot.kernel is not None and not slot.kernel.fresh):
            return notice, []
        if state is not None:
            replay = state.again if self._rules.replay == "always" else []
            return " ".join(filter(None, (notice, describe_restore(state, self._rules.replay)))), replay
        reason = reason or ("the document had none" if notebook.document else "the server was restarted since")
        fresh = f"This is a fresh kernel: {reason}. Variables of earlier cells are gone; run those cells again."
        return " ".join(filter(None, (notice, *damaged, fresh))), []

    async def _start(self, slot: KernelSlot, *, restore: bool) -> tuple[RestoredState | None, list[str]]:
        """Start a kernel and load its latest snapshot. Returns what was restored, and damaged snapshots."""
        if not await self.slots.reserve(slot.notebook):
            raise NotebookLocked(slot.notebook.name)
        try:
            async with self._admission.reserve(slot.notebook):
                slot.kernel = await self.runtimes.start(slot.notebook)
            slot.used_at = math.inf
            return await self._restore(slot, slot.kernel) if restore else (None, [])
        except BaseException:
            await self.slots.close_kernel(slot)
            raise

    async def _restore(self, slot: KernelSlot, kernel: Kernel) -> tuple[RestoredState | None, list[str]]:
        if self._restorer is None or not self._rules.restore:
            return None, []
        state, damaged = await self._restorer.restore_latest(slot.notebook, kernel)
        if state is not None:
            slot.lineage = state.lineage
            if state.lineage.head is None:
                slot.kernel = await self._replace_root(slot.notebook, kernel)
        return state, damaged

    async def _replace_root(self, notebook: Notebook, kernel: Kernel) -> Kernel:
        """Replace a kernel by one that starts with its current state, so that a rollback can return to it."""
        cost = await kernel.checkpoint(_ROOT)
        if isinstance(cost, str):
            return kernel
        branched = await kernel.branch(_ROOT, self.runtimes.spec(notebook))
        await kernel.close()
        return branched
