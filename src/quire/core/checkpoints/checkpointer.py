"""Take checkpoints of live kernels: when one is needed, how long it waits, and what is done if there can be none."""

from __future__ import annotations

from dataclasses import dataclass

from quire.core.errors import OperationFailed
from quire.core.kernels.recovery import KernelRecovery
from quire.core.kernels.runtimes import Runtimes
from quire.core.kernels.slot import KernelSlot
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook, Policy, RunId
from quire.core.ports.kernel import START, Kernel

INITIAL = "beginning"
"""The checkpoint of a kernel in which nothing has run. Snapshots on disk name it."""


@dataclass(frozen=True, kw_only=True)
class SnapshotSource:
    """A checkpoint that a snapshot is written from."""

    kernel: Kernel
    head: RunId | None  # the run it was taken after
    is_temporary: bool  # drop it afterwards

    @property
    def checkpoint(self) -> str:
        return self.head or INITIAL

    def drop_if_temporary(self) -> None:
        if self.is_temporary:
            self.kernel.forget(self.checkpoint)


def requires_checkpoints(policy: Policy) -> bool:
    """Whether runs depend on checkpoints: isolation and undo need one, whatever the memory limit says. Pure."""
    return policy.isolation == "cell" or policy.on_error == "rollback"


class Checkpointer:
    def __init__(self, slots: KernelSlots, runtimes: Runtimes, recovery: KernelRecovery) -> None:
        self._slots = slots
        self._runtimes = runtimes
        self._recovery = recovery

    def delay(self, slot: KernelSlot) -> float:
        """Seconds without a request to wait for before `take`."""
        return slot.lineage.checkpoint_delay() if self._is_needed(slot) else 0.0

    async def prepare(self, slot: KernelSlot) -> None:
        """Revive the kernel, and retake the checkpoint that a rollback or a restore used up."""
        await self._recovery.revive(slot)
        if slot.lineage.lacks_base:
            await self.take(slot)

    async def take(self, slot: KernelSlot) -> None:
        """Take a checkpoint of the current state, if one is needed."""
        await self._recovery.revive(slot)
        kernel, lineage = slot.kernel, slot.lineage
        lineage.lacks_base = False
        if not self._is_needed(slot):
            return
        assert kernel is not None and lineage.head is not None
        cost = await kernel.checkpoint(lineage.head)
        if isinstance(cost, str):
            lineage.why_unprotected = cost
        else:
            lineage.checkpoint_taken(cost)
            await kernel.thin_out(set(slot.named_checkpoints.values()))
            if slot.notebook.policy.isolation == "cell":
                await self._replace_process(slot, kernel)
        await self._recovery.revive(slot)

    async def lock_and_take(self, notebook: Notebook) -> None:
        """Lock the notebook's slot and take a checkpoint."""
        async with self._slots.lock(notebook, is_request=False) as slot:
            await self.take(slot)

    async def require(self, slot: KernelSlot, kernel: Kernel) -> str:
        """The checkpoint of the current state; taken if missing. Raises OperationFailed if it cannot be."""
        head = slot.lineage.head
        if head is not None and head not in kernel.checkpoints:
            cost = await kernel.checkpoint(head)
            if isinstance(cost, str):
                raise OperationFailed(f"No checkpoint of the namespace can be taken: {cost}.")
            slot.lineage.checkpoint_taken(cost)
        return head or START

    async def snapshot_source(self, notebook: Notebook) -> SnapshotSource | None:
        """The checkpoint of the current state to write a snapshot from; taken if missing. None without a state.

        One that exists is used without the lock, even while the next cell runs. Raises OperationFailed if none can be
        taken.
        """
        kernel, lineage = self._slots.live_kernel(notebook), self._slots.lineage(notebook)
        if kernel is not None and lineage is not None and lineage.head in kernel.checkpoints:
            return SnapshotSource(kernel=kernel, head=lineage.head, is_temporary=False)
        async with self._slots.lock(notebook, is_request=False) as slot:
            await self.prepare(slot)
            kernel, head = slot.kernel, slot.lineage.head
            if kernel is None or (head is None and notebook.origin is None):
                return None
            if head is not None and head in kernel.checkpoints:
                return SnapshotSource(kernel=kernel, head=head, is_temporary=False)
            cost = await kernel.checkpoint(head or INITIAL)
            if isinstance(cost, str):
                raise OperationFailed(f"There is no checkpoint to write, {cost}. The last snapshot stands.")
            is_kept = head is not None and self._runtimes.spec(notebook).checkpoint_bytes > 0
            if is_kept:
                slot.lineage.checkpoint_taken(cost)
            return SnapshotSource(kernel=kernel, head=head, is_temporary=not is_kept)

    def _is_needed(self, slot: KernelSlot) -> bool:
        if not slot.is_unprotected:
            return False
        if requires_checkpoints(slot.notebook.policy) or self._runtimes.spec(slot.notebook).checkpoint_bytes:
            return True
        slot.lineage.why_unprotected = "checkpoints are turned off by the setting checkpoints.max_memory_bytes"
        return False

    async def _replace_process(self, slot: KernelSlot, kernel: Kernel) -> None:
        """With isolation per cell, start the next cell's process from the checkpoint, as after a crash."""
        await kernel.kill()
        await self._recovery.recover(slot, kernel)
        slot.lineage.lacks_base = False
        cost = await kernel.checkpoint(slot.lineage.head) if slot.lineage.head is not None else 0.0
        slot.lineage.why_unprotected = cost if isinstance(cost, str) else ""
