"""A kernel for one turn: what it was lent with, and putting it back when it dies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import anyio

from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.errors import OperationFailed
from quire.core.kernels.lineage import RunLineage
from quire.core.model import Cell, Notebook, RunId
from quire.core.ports.kernel import START, Kernel


@dataclass
class KernelSlot:
    """A notebook's place for a kernel. Its turn is taken by whoever uses the kernel."""

    notebook: Notebook
    turn: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    kernel: Kernel | None = None
    line: RunLineage = field(default_factory=RunLineage)
    named: dict[str, RunId] = field(default_factory=dict)  # checkpoints people gave a name, by that name
    gone: str = ""  # why the last kernel is no more; "" where nothing was lost
    notice: str = ""  # what happened since the last answer, for the next
    resets: int = 0
    used_at: float = 0.0
    waiting: int = 0
    wanted: anyio.Event = field(default_factory=anyio.Event)  # somebody waits for the turn

    @property
    def is_unprotected(self) -> bool:
        """Whether a kernel lives, in a state of which there is no checkpoint."""
        head = self.line.head
        return (
            self.kernel is not None and self.kernel.alive and head is not None and head not in self.kernel.checkpoints
        )

    async def wait_replaced(self) -> None:
        """If the kernel's process has ended, wait until the run that replaces it is done: with isolation per cell there
        is no process for a moment after every run."""
        if self.kernel is not None and not self.kernel.alive:
            async with self.turn:
                pass

    async def undisturbed(self, seconds: float) -> bool:
        """Whether nobody asked for the turn for so long; where somebody did, that is why there is no checkpoint."""
        if not self.waiting:
            self.wanted = anyio.Event()
            with anyio.move_on_after(seconds):
                await self.wanted.wait()
            if not self.wanted.is_set():
                return True
        self.line.why = "cells came too quickly after one another"
        return False


@dataclass(frozen=True, kw_only=True)
class RecoveryResult:
    """What became of a namespace whose process died."""

    restored: bool  # it is as it was before the run, but for `lost`
    lost: tuple[RunId, ...] = ()  # earlier runs that had no checkpoint: their effects are gone too
    broken: tuple[str, ...] = ()  # what the restored one does not have
    hostile: bool = False  # among it a library that works in fresh kernels only
    why: str = ""  # there was no checkpoint to go back to
    emptied: bool = False  # all variables are gone, those too that were not made here
    follows: Literal["saved", "empty", "none"] = "saved"  # what the kernel begins with that comes after this one


@dataclass(frozen=True, kw_only=True)
class KernelLease:
    """A kernel for one turn. `notice` says what a fresh one does not have any more, or what came back from disk;
    `again` are the cells that bring back the rest."""

    notebook: Notebook
    kernel: Kernel
    line: RunLineage
    notice: str = ""
    again: tuple[Cell, ...] = ()
    durable: SnapshotRestorer | None = None

    @property
    def protected(self) -> bool:
        """Whether there is a checkpoint of exactly where the namespace stood before the run."""
        return not self.line.nearest(self.kernel.checkpoints)[1]

    async def recover(self) -> RecoveryResult:
        """Put the namespace back to the newest checkpoint on the way here, a live one or one on disk."""
        why = self.line.why
        while True:
            name, lost = self.line.nearest(self.kernel.checkpoints)
            if lost and self.durable is not None:
                back = await self._from_disk(self.durable, lost)
                if back is not None:
                    return back
            census = self.kernel.checkpoints.get(name, self.line.start)
            try:
                await self.kernel.restore(name)
            except OperationFailed as error:
                if name == START:
                    return RecoveryResult(restored=False, why=str(error), follows=self._follows())
                why = "the newest did not wake"
                continue  # it is kept no more
            self.line.move(name)
            return RecoveryResult(
                restored=True,
                lost=tuple(lost),
                broken=census.lost,
                hostile=census.quality == "hostile",
                why=why,
                emptied=name == START and self.notebook.document is not None,  # others use its kernel, too
            )

    def _follows(self) -> Literal["saved", "empty", "none"]:
        place = self.notebook.document
        if place is None:
            return "saved"
        return "empty" if place.path else "none"  # without a document it is of that one kernel

    async def _from_disk(self, durable: SnapshotRestorer, since: list[RunId]) -> RecoveryResult | None:
        snapshot = await durable.nearer(self.notebook, since)
        if snapshot is None or snapshot.run is None:
            return None
        try:
            back = await durable.load(self.notebook, self.kernel, snapshot)
        except OperationFailed:
            return None
        self.line.move(snapshot.run)
        return RecoveryResult(
            restored=True,
            lost=tuple(since[since.index(snapshot.run) + 1 :]),
            broken=tuple(loss.name for loss, _ in back.lost),
            why="there is none after it, live or on disk",
        )
