"""Roll a notebook's namespace back to an earlier state, and name states to return to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from quire.core.checkpoints.checkpointer import Checkpointer
from quire.core.checkpoints.restorer import RestoredState
from quire.core.checkpoints.state_resolver import StateResolver
from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.kernels.pool import KernelPool
from quire.core.kernels.recovery import KernelRecovery
from quire.core.kernels.slot import KernelSlot
from quire.core.limits.validation import check_name, check_states
from quire.core.model import Cell, Notebook, RunId, Snapshot
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background
from quire.core.phrases import existing
from quire.core.ports.kernel import START, Kernel
from quire.core.ports.store import NotebookStore


@dataclass(frozen=True, kw_only=True)
class RollbackResult:
    run: RunId | None  # the last run that the namespace contains; None: the kernel's initial state
    cell: Cell | None
    stale: tuple[int, ...]  # numbers of cells whose outputs are of a state that was left
    lost: tuple[str, ...]  # what was not restored
    already: bool = False  # the namespace was in that state
    back: RestoredState | None = None  # if it was loaded from disk


class Timeline:
    def __init__(
        self,
        store: NotebookStore,
        kernels: KernelPool,
        checkpointer: Checkpointer,
        recovery: KernelRecovery,
        resolver: StateResolver,
        feed: Feed,
        start_soon: Callable[..., object],
    ) -> None:
        """`start_soon` runs a function after the answer."""
        self._store = store
        self._kernels = kernels
        self._checkpointer = checkpointer
        self._recovery = recovery
        self._resolver = resolver
        self._feed = feed
        self._start_soon = start_soon

    async def name_checkpoint(self, notebook: Notebook, name: str) -> RunId:
        """Name the current state, for `rollback`. Named checkpoints are dropped last."""
        check_states(notebook)
        check_name(name, what="checkpoint")
        async with self._kernels.slots.lock(notebook) as slot:
            kernel = await self._kernels.ensure_with_history(slot)
            await self._checkpointer.require(slot, kernel)
            if slot.lineage.head is None:
                raise InvalidRequest("No cell has run yet: there is nothing to keep.")
            slot.named_checkpoints[name] = slot.lineage.head
            return slot.lineage.head

    async def rollback(self, notebook: Notebook, to: str | int) -> RollbackResult:
        """Put the namespace back to the state that `to` names. Later cells become stale; their outputs stay."""
        check_states(notebook)
        self._kernels.slots.check_not_busy(notebook)
        async with self._kernels.slots.lock(notebook) as slot:
            kernel = await self._kernels.ensure_with_history(slot)
            result = await self._go_to(slot, kernel, await self._resolver.resolve(slot, kernel, to))
            if not result.already:
                slot.notice = ""  # about the state that was left
        self._start_soon(self._checkpointer.lock_and_take, notebook)  # the rollback used up the checkpoint
        self._feed.tell(Change(notebook=notebook))
        return result

    async def restore(self, notebook: Notebook, name: str) -> RollbackResult:
        """Put the namespace back to the state saved under a name."""
        check_states(notebook)
        saved = [snapshot.name for snapshot in await self._resolver.list_snapshots(notebook) if snapshot.name]
        if name not in saved:
            known = existing(name, saved) if saved else "None was saved."
            raise NotFound(
                f"No state of notebook {notebook.name!r} is saved as {name!r}. {known} Nothing was changed.",
                agent="" if saved else "save_state saves one.",
                person="" if saved else "`quire save` saves one.",
            )
        return await self.rollback(notebook, name)

    async def _go_to(self, slot: KernelSlot, kernel: Kernel, state: str | Snapshot) -> RollbackResult:
        lineage = slot.lineage
        if isinstance(state, Snapshot):
            return await self._load(slot, kernel, state)
        if state == (lineage.head or START):
            return await self._result(slot, (), already=True)
        report = kernel.checkpoints[state] if state != START else lineage.start
        failed: list[QuireError] = []
        async with background(wait=True) as group:
            group.start_soon(self._mark, slot.notebook, lineage.stale_marks(state), failed)
            await self._recovery.restore(slot, kernel, state)
        lineage.move_to(state)
        _raise_unmarked(failed)
        return await self._result(slot, report.lost)

    async def _load(self, slot: KernelSlot, kernel: Kernel, snapshot: Snapshot) -> RollbackResult:
        with contextlib.suppress(OperationFailed):
            await self._checkpointer.require(slot, kernel)  # to return to if the snapshot does not load
        restored = await self._recovery.load(slot, kernel, snapshot)
        slot.lineage.steps.update(restored.lineage.steps)
        state = snapshot.run or START
        failed: list[QuireError] = []
        await self._mark(slot.notebook, slot.lineage.stale_marks(state), failed)
        slot.lineage.move_to(state)
        _raise_unmarked(failed)
        lost = tuple(f"{loss.name} ({loss.what})" for loss, _ in restored.lost)
        return await self._result(slot, lost, back=replace(restored, after=()))

    async def _mark(self, notebook: Notebook, marks: dict[RunId, bool], failed: list[QuireError]) -> None:
        try:
            await self._recovery.mark_stale(notebook, marks)
        except QuireError as error:
            failed.append(error)

    async def _result(
        self, slot: KernelSlot, lost: tuple[str, ...], *, already: bool = False, back: RestoredState | None = None
    ) -> RollbackResult:
        cells = await self._store.list_cells(slot.notebook.id, 0, None)
        head = slot.lineage.head
        step = slot.lineage.steps.get(head) if head is not None else None
        return RollbackResult(
            run=head,
            cell=next((cell for cell in cells if step is not None and cell.id == step.cell), None),
            stale=tuple(cell.number for cell in cells if cell.run is not None and cell.run.stale),
            lost=lost,
            already=already,
            back=back,
        )


def _raise_unmarked(failed: list[QuireError]) -> None:
    if failed:
        raise OperationFailed(f"The namespace was rolled back, but cells were not marked stale: {failed[0]}")
