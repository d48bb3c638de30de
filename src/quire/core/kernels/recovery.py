"""Restore a kernel whose process ended, from the newest checkpoint or snapshot of its state."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from quire.core.checkpoints.restorer import RestoredState, SnapshotNotLoaded, SnapshotRestorer
from quire.core.errors import OperationFailed
from quire.core.kernels.slot import KernelSlot, NextKernel, RecoveryResult
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook, RunId, Snapshot
from quire.core.ports.kernel import START, Kernel
from quire.core.ports.store import NotebookStore, RunStore
from quire.core.runs.outcome import describe_revived


class KernelRecovery:
    def __init__(
        self, slots: KernelSlots, store: NotebookStore, run_store: RunStore, restorer: SnapshotRestorer | None
    ) -> None:
        self._slots = slots
        self._store = store
        self._run_store = run_store
        self._restorer = restorer

    async def mark_stale(self, notebook: Notebook, marks: Mapping[RunId, bool]) -> None:
        """Record for each of these runs whether the namespace was rolled back to a state before it."""
        await self._run_store.mark_stale(notebook.id, marks)

    async def revive(self, slot: KernelSlot) -> RecoveryResult | None:
        """Restore the slot's kernel if its process ended, or close it. None if it lives or the slot is empty."""
        if slot.kernel is None or slot.kernel.alive:
            return None
        recovered = await self.recover(slot, slot.kernel)
        if recovered.restored:
            slot.notice = describe_revived(recovered)
        else:
            slot.end_reason = slot.end_reason or "the process of the last one ended"
            await self._slots.close_kernel(slot)
        return recovered

    async def recover(self, slot: KernelSlot, kernel: Kernel) -> RecoveryResult:
        """Put the state back to the newest checkpoint or snapshot of it. Marks the runs that are lost by that."""
        why = slot.lineage.why_unprotected
        while True:
            name, lost = slot.lineage.nearest_checkpoint(kernel.checkpoints)
            if lost and (recovered := await self._load_newer(slot, kernel, lost)) is not None:
                return recovered
            report = kernel.checkpoints.get(name, slot.lineage.start)
            try:
                await kernel.restore(name)
            except OperationFailed as error:
                if name == START:
                    return RecoveryResult(restored=False, why=str(error), next_kernel=_next_kernel(slot.notebook))
                why = "the newest did not wake"
                continue  # the kernel has dropped it
            slot.lineage.move_to(name)
            return RecoveryResult(
                restored=True,
                lost_runs=tuple(lost),
                lost_cells=await self._mark_lost_runs(slot, lost),
                missing=report.lost,
                is_hostile=report.quality == "hostile",
                why=why,
                is_emptied=name == START and slot.notebook.document is not None,  # others use its kernel, too
            )

    async def _load_newer(self, slot: KernelSlot, kernel: Kernel, lost: list[RunId]) -> RecoveryResult | None:
        """Load the newest snapshot taken after one of the lost runs, if there is one."""
        if self._restorer is None:
            return None
        snapshot = await self._restorer.find_newest(slot.notebook, lost)
        if snapshot is None or snapshot.run is None:
            return None
        try:
            state = await self._restorer.load(slot.notebook, kernel, snapshot)
        except OperationFailed:
            return None
        still_lost = lost[lost.index(snapshot.run) + 1 :]
        slot.lineage.move_to(snapshot.run)
        return RecoveryResult(
            restored=True,
            lost_runs=tuple(still_lost),
            lost_cells=await self._mark_lost_runs(slot, still_lost),
            missing=tuple(loss.name for loss, _ in state.lost),
            why="there is no newer one, live or on disk",
        )

    async def _mark_lost_runs(self, slot: KernelSlot, lost: list[RunId]) -> tuple[int, ...]:
        """Mark the runs stale. Returns the numbers of their cells."""
        notebook = slot.notebook
        if not lost:
            return ()
        with contextlib.suppress(OperationFailed):  # a full disk: the answer names the cells all the same
            await self._run_store.mark_stale(notebook.id, dict.fromkeys(lost, True))
        if notebook.document is not None and not notebook.document.path:  # code without cells
            return ()
        cells = [await self._store.find_cell(notebook.id, slot.lineage.steps[run].cell) for run in lost]
        return tuple(sorted({cell.number for cell in cells if cell is not None}))

    async def restore(self, slot: KernelSlot, kernel: Kernel, checkpoint: str) -> None:
        """Wake a checkpoint. If that fails, put the state back to what it was, and raise OperationFailed."""
        try:
            await kernel.restore(checkpoint)
        except OperationFailed as error:
            await self._run_store.mark_stale(slot.notebook.id, slot.lineage.stale_marks(slot.lineage.head or START))
            recovered = await self.revive(slot)
            slot.notice = ""
            if recovered is not None and not recovered.restored:
                raise
            lost = len(recovered.lost_runs) if recovered is not None else 0
            but = f" but for the last {lost}" if lost else ""
            raise OperationFailed(f"{error} The namespace is as it was before this call{but}.") from error

    async def load(self, slot: KernelSlot, kernel: Kernel, snapshot: Snapshot) -> RestoredState:
        """Load a snapshot. If that fails, put the state back to what it was, and raise OperationFailed."""
        assert self._restorer is not None
        try:
            return await self._restorer.load(slot.notebook, kernel, snapshot)
        except SnapshotNotLoaded as error:
            recovered = await self.recover(slot, kernel)
            if not recovered.restored:
                raise
            lost = f" but for cells {', '.join(map(str, recovered.lost_cells))}" if recovered.lost_cells else ""
            raise OperationFailed(f"{error} The namespace is as it was before this call{lost}.") from error


def _next_kernel(notebook: Notebook) -> NextKernel:
    if notebook.document is None:
        return "saved"
    return "empty" if notebook.document.path else "none"  # without a document the notebook is of that one kernel
