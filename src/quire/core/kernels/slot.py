"""The slot of one notebook's kernel, and the result of a recovery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import anyio

from quire.core.kernels.lineage import RunLineage
from quire.core.model import ForkReport, Notebook, RunId
from quire.core.ports.kernel import Kernel

NextKernel = Literal["saved", "empty", "none"]
"""What the notebook's next kernel starts with: the saved state, nothing, or there is no next kernel."""


@dataclass
class KernelSlot:
    """Holds a notebook's kernel. Whoever uses the kernel holds the lock."""

    notebook: Notebook  # as the last request has it
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    kernel: Kernel | None = None
    lineage: RunLineage = field(default_factory=RunLineage)
    named_checkpoints: dict[str, RunId] = field(default_factory=dict)
    end_reason: str = ""  # why the last kernel ended; "" if nothing was lost
    notice: str = ""  # for the next answer
    reset_count: int = 0
    used_at: float = 0.0
    request_count: int = 0  # requests that use the kernel or wait for it
    request_arrived: anyio.Event = field(default_factory=anyio.Event)

    def adopt(self, kernel: Kernel, start: ForkReport) -> None:
        """Put in a kernel that was started elsewhere, with the report of the state that it starts with."""
        self.kernel, self.lineage, self.used_at = kernel, RunLineage(start=start), anyio.current_time()

    @property
    def is_unprotected(self) -> bool:
        """Whether the kernel lives and there is no checkpoint of its state."""
        head = self.lineage.head
        return (
            self.kernel is not None and self.kernel.alive and head is not None and head not in self.kernel.checkpoints
        )

    async def wait_replaced(self) -> None:
        """If the kernel's process has ended, wait until the run that replaces it ends.

        With isolation per cell there is no process for a moment after every run.
        """
        if self.kernel is not None and not self.kernel.alive:
            async with self.lock:
                pass

    async def wait_idle(self, seconds: float) -> bool:
        """Wait for a pause between requests. Returns whether there was one; if not, notes why there is no checkpoint
        in the lineage."""
        if not self.request_count:
            self.request_arrived = anyio.Event()
            with anyio.move_on_after(seconds):
                await self.request_arrived.wait()
            if not self.request_arrived.is_set():
                return True
        self.lineage.why_unprotected = "cells came too quickly after one another"
        return False


@dataclass(frozen=True, kw_only=True)
class RecoveryResult:
    """What became of a namespace whose process ended."""

    restored: bool  # it is as it was before the run, except for `lost_runs`
    lost_runs: tuple[RunId, ...] = ()  # earlier runs without a checkpoint: their effects are gone too
    lost_cells: tuple[int, ...] = ()  # the numbers of their cells
    missing: tuple[str, ...] = ()  # what the restored namespace does not have
    is_hostile: bool = False  # it uses a library that works in fresh kernels only
    why: str = ""  # there was no newer checkpoint
    is_emptied: bool = False  # all variables are gone, also those made by others
    next_kernel: NextKernel = "saved"
