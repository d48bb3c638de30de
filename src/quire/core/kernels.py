"""Kernels: one for each notebook that runs code, lent to one caller at a time, protected and recovered."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from quire.core.errors import Failed, HeldElsewhere
from quire.core.line import Line
from quire.core.model import Census, KernelSpec, Notebook, NotebookId, RunId
from quire.core.ports import START, Kernel, Runtime, Store

_SWEEP = 30.0  # seconds between looks for idle kernels


@dataclass
class Slot:
    """A notebook's place for a kernel. Its turn is taken by whoever uses the kernel."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    kernel: Kernel | None = None
    line: Line = field(default_factory=Line)
    named: dict[str, RunId] = field(default_factory=dict)  # checkpoints people gave a name, by that name
    gone: str = ""  # why the last kernel is no more; "" where nothing was lost
    notice: str = ""  # what happened since the last answer, for the next
    used_at: float = 0.0
    waiting: int = 0
    wanted: anyio.Event = field(default_factory=anyio.Event)  # somebody waits for the turn


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What became of a namespace whose process died."""

    restored: bool  # it is as it was before the run, but for `lost`
    lost: tuple[RunId, ...] = ()  # earlier runs that had no checkpoint: their effects are gone too
    broken: tuple[str, ...] = ()  # what the restored one does not have
    hostile: bool = False  # among it a library that works in fresh kernels only
    why: str = ""  # there was no checkpoint to go back to


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A kernel for one turn. `notice` says what a fresh one does not have any more."""

    kernel: Kernel
    line: Line
    notice: str = ""

    @property
    def protected(self) -> bool:
        """Whether there is a checkpoint of exactly where the namespace stood before the run."""
        return not self.line.nearest(self.kernel.checkpoints)[1]

    async def recover(self) -> Recovered:
        """Put the namespace back to the newest checkpoint on the way here."""
        why = self.line.why
        while True:
            name, lost = self.line.nearest(self.kernel.checkpoints)
            census = self.kernel.checkpoints.get(name, self.line.start)
            try:
                await self.kernel.restore(name)
            except Failed as error:
                if name == START:
                    return Recovered(restored=False, why=str(error))
                why = "the newest did not wake"
                continue  # it is kept no more
            self.line.move(name)
            return Recovered(
                restored=True,
                lost=tuple(lost),
                broken=census.lost,
                hostile=census.quality == "hostile",
                why=why,
            )


class Kernels:
    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        store: Store,
        spec: Callable[[Notebook], KernelSpec],
        idle_timeout: float,
    ) -> None:
        self._runtimes = runtimes
        self._store = store
        self.spec = spec
        self._idle_timeout = idle_timeout  # seconds; 0 never
        self._slots: dict[NotebookId, Slot] = {}

    @asynccontextmanager
    async def lease(self, notebook: Notebook) -> AsyncIterator[Lease]:
        """This notebook's kernel, started where there is none, for as long as the block lasts.

        Leaving it takes a checkpoint, if a run moved the namespace: whoever waits for the run's outcome has it by then.
        """
        async with self.turn(notebook) as slot:
            slot.line.used(anyio.current_time() - slot.used_at)
            try:
                await self.settle(notebook, slot)
                notice = await self._ensure(notebook, slot)
                assert slot.kernel is not None
                yield Lease(kernel=slot.kernel, line=slot.line, notice=notice)
            finally:
                slot.waiting -= 1
            try:
                await self._protect(notebook, slot)
            finally:
                slot.waiting += 1

    @asynccontextmanager
    async def turn(self, notebook: Notebook, *, asked: bool = True) -> AsyncIterator[Slot]:
        """The notebook's kernel, or none, to oneself; `asked` by a caller, for whom it is busy meanwhile."""
        slot = self._slots.setdefault(notebook.id, Slot())
        slot.waiting += asked
        if asked:
            slot.wanted.set()
        try:
            async with slot.turn:
                try:
                    yield slot
                finally:
                    slot.used_at = anyio.current_time()
        finally:
            slot.waiting -= asked

    def busy(self, notebook: Notebook) -> bool:
        slot = self._slots.get(notebook.id)
        return slot is not None and slot.waiting > 0

    def live(self, notebook: Notebook) -> Kernel | None:
        """The kernel there is, if any; not to be run on without a lease."""
        slot = self._slots.get(notebook.id)
        return slot.kernel if slot is not None and slot.kernel is not None and slot.kernel.alive else None

    def line(self, notebook: Notebook) -> Line | None:
        """Where the live namespace stands; None where there is none."""
        return self._slots[notebook.id].line if self.live(notebook) is not None else None

    def held(self, notebook: Notebook) -> bool:
        """Reserve the notebook for this process; False where another one has it."""
        return self.live(notebook) is not None or self.busy(notebook) or self._store.hold(notebook.id)

    def remember(self, notebook: Notebook, notice: str) -> None:
        """To be said with the next answer, since this one has no place for it."""
        self._slots[notebook.id].notice = notice

    def lost(self, notebook: Notebook, why: str) -> None:
        """Remember why the kernel is gone, for the one who comes next."""
        self._slots.setdefault(notebook.id, Slot()).gone = why

    async def end(self, notebook: Notebook) -> None:
        """A clean namespace: wait for the turn, end the kernel; nothing is said to be lost."""
        async with self.turn(notebook) as slot:
            await self._end(notebook.id, slot)
            slot.gone = "reset"

    def named(self, notebook: Notebook) -> dict[str, RunId]:
        """Checkpoints people gave a name, by that name."""
        slot = self._slots.get(notebook.id)
        return dict(slot.named) if slot is not None else {}

    def place(self, notebook: Notebook, kernel: Kernel, start: Census) -> None:
        """Give a new notebook a kernel that is there already."""
        self._store.hold(notebook.id)
        self._slots[notebook.id] = Slot(kernel=kernel, line=Line(start=start), used_at=anyio.current_time())

    async def protect(self, notebook: Notebook) -> None:
        """Take a checkpoint of where the namespace stands, in its turn."""
        async with self.turn(notebook, asked=False) as slot:
            await self._protect(notebook, slot)

    async def sweep(self) -> None:
        """Close kernels nobody used for long; runs until cancelled."""
        while self._idle_timeout:
            await anyio.sleep(min(_SWEEP, self._idle_timeout))
            oldest = anyio.current_time() - self._idle_timeout
            for id_, slot in list(self._slots.items()):
                if slot.kernel is not None and not slot.waiting and slot.used_at < oldest:
                    async with slot.turn:
                        await self._end(id_, slot)
                        slot.gone = f"it was closed after {self._idle_timeout:g} s without use"

    async def close(self) -> None:
        async with anyio.create_task_group() as group:
            for id_, slot in self._slots.items():
                group.start_soon(self._end, id_, slot)

    async def _ensure(self, notebook: Notebook, slot: Slot) -> str:
        """Have a live kernel in the slot; what must be said about it."""
        await self.revive(notebook, slot)
        notice, slot.notice = slot.notice, ""
        if slot.kernel is not None:
            return notice
        if not self._store.hold(notebook.id):
            raise HeldElsewhere(
                f"Notebook {notebook.name!r} is being run by another Quire server on this data directory. "
                "Use another notebook (create_notebook), or end that server."
            )
        try:
            slot.kernel = await self._runtimes[notebook.runtime].start(self.spec(notebook))
        except BaseException:
            self._store.release(notebook.id)
            raise
        slot.used_at = math.inf
        gone, slot.gone = slot.gone, ""
        if gone == "reset" or not (notebook.runs or notebook.origin):
            return ""
        why = gone or "the server was started anew since"
        fresh = f"This is a fresh kernel: {why}. Variables of earlier cells are gone; run those cells again."
        return " ".join(filter(None, (notice, fresh)))

    async def settle(self, notebook: Notebook, slot: Slot) -> None:
        """Have the kernel live, and a checkpoint of where it stands if that was used up."""
        await self.revive(notebook, slot)
        if slot.line.bare:
            await self._protect(notebook, slot)

    async def revive(self, notebook: Notebook, slot: Slot) -> Recovered | None:
        """Restore a kernel whose process died, or end it for good; None where it lives, or there is none."""
        if slot.kernel is None or slot.kernel.alive:
            return None
        recovered = await Lease(kernel=slot.kernel, line=slot.line).recover()
        if not recovered.restored:
            slot.gone = slot.gone or "the process that kept it was ended"
            await self._end(notebook.id, slot)
        else:
            cells = await self.left_behind(notebook, slot.line, recovered)
            slot.notice = "The kernel's process died between two runs and was restored."
            if recovered.lost:
                again = ", ".join(map(str, cells)) or "deleted since"
                slot.notice += f" Some of what ran is gone, since there was no checkpoint. Run again: cells {again}."
        return recovered

    async def left_behind(self, notebook: Notebook, line: Line, recovered: Recovered) -> list[int]:
        """Mark the runs that were lost in a recovery; the numbers of their cells."""
        if not recovered.lost:
            return []
        with contextlib.suppress(Failed):  # a full disk: the answer names them all the same
            await self._store.mark_stale(notebook.id, dict.fromkeys(recovered.lost, True))
        cells = [await self._store.find_cell(notebook.id, line.steps[run].cell) for run in recovered.lost]
        return sorted({cell.number for cell in cells if cell is not None})

    async def _protect(self, notebook: Notebook, slot: Slot) -> None:
        """A checkpoint of where the namespace stands now; a dear one waits until nobody is in a hurry, but not one
        that takes the place of what was woken."""
        await self.revive(notebook, slot)
        kernel, line = slot.kernel, slot.line
        patience = 0.0 if line.bare else line.patience()
        line.bare = False
        if kernel is None or not kernel.alive or line.head is None or line.head in kernel.checkpoints:
            return
        policy = notebook.policy
        if not self.spec(notebook).checkpoint_bytes and policy.isolation != "cell" and policy.on_error == "keep":
            line.why = "checkpoints are turned off by the setting checkpoint_bytes"
            return
        if not await _undisturbed(slot, patience):
            line.why = "cells came too quickly after one another"
            return
        taken = await kernel.checkpoint(line.head)
        if isinstance(taken, str):
            line.why = taken
        else:
            line.protected(taken)
            await kernel.thin_out(set(slot.named.values()))
            if policy.isolation == "cell":  # the next cell's process comes of the checkpoint, as after a crash
                await kernel.kill()
                await Lease(kernel=kernel, line=line).recover()
                await self._protect_anew(kernel, line)
        await self.revive(notebook, slot)

    async def _protect_anew(self, kernel: Kernel, line: Line) -> None:
        line.bare = False
        taken = await kernel.checkpoint(line.head) if line.head is not None else 0.0
        line.why = taken if isinstance(taken, str) else ""

    async def _end(self, id_: NotebookId, slot: Slot) -> None:
        kernel, slot.kernel = slot.kernel, None
        slot.line = Line()
        slot.named = {}
        if kernel is not None:
            with anyio.CancelScope(shield=True):
                await kernel.close()
            self._store.release(id_)


async def _undisturbed(slot: Slot, seconds: float) -> bool:
    """Whether nobody asked for the turn for so long."""
    if not seconds:
        return True
    if slot.waiting:
        return False
    slot.wanted = anyio.Event()
    with anyio.move_on_after(seconds):
        await slot.wanted.wait()
        return False
    return True
