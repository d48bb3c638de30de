"""Kernels: one for each notebook that runs code, lent to one caller at a time, in the order they asked."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from quire.core.errors import HeldElsewhere
from quire.core.model import KernelSpec, Notebook, NotebookId
from quire.core.ports import Kernel, Runtime, Store

_SWEEP = 30.0  # seconds between looks for idle kernels


@dataclass
class _Slot:
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    kernel: Kernel | None = None
    gone: str = ""  # why the last kernel is no more; "" where nothing was lost
    used_at: float = 0.0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A kernel for one turn. `notice` says what a fresh one does not have any more."""

    kernel: Kernel
    notice: str = ""


class Kernels:
    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        store: Store,
        workspace: Callable[[Notebook], str],
        idle_timeout: float,
    ) -> None:
        self._runtimes = runtimes
        self._store = store
        self._workspace = workspace
        self._idle_timeout = idle_timeout  # seconds; 0 never
        self._slots: dict[NotebookId, _Slot] = {}

    @asynccontextmanager
    async def lease(self, notebook: Notebook) -> AsyncIterator[Lease]:
        """This notebook's kernel, started where there is none, for as long as the block lasts."""
        slot = self._slots.setdefault(notebook.id, _Slot())
        slot.waiting += 1
        try:
            async with slot.turn:
                notice = await self._ensure(notebook, slot)
                assert slot.kernel is not None
                try:
                    yield Lease(kernel=slot.kernel, notice=notice)
                finally:
                    slot.used_at = anyio.current_time()
                    if not slot.kernel.alive:
                        await self._end(notebook.id, slot)
        finally:
            slot.waiting -= 1

    def busy(self, notebook: Notebook) -> bool:
        slot = self._slots.get(notebook.id)
        return slot is not None and slot.waiting > 0

    def live(self, notebook: Notebook) -> Kernel | None:
        """The kernel there is, if any; not to be run on without a lease."""
        slot = self._slots.get(notebook.id)
        return slot.kernel if slot is not None and slot.kernel is not None and slot.kernel.alive else None

    def held(self, notebook: Notebook) -> bool:
        """Reserve the notebook for this process; False where another one has it."""
        return self.live(notebook) is not None or self.busy(notebook) or self._store.hold(notebook.id)

    def lost(self, notebook: Notebook, why: str) -> None:
        """Remember why the kernel is gone, for the one who comes next."""
        self._slots.setdefault(notebook.id, _Slot()).gone = why

    async def end(self, notebook: Notebook) -> None:
        """A clean namespace: wait for the turn, end the kernel; nothing is said to be lost."""
        slot = self._slots.setdefault(notebook.id, _Slot())
        async with slot.turn:
            await self._end(notebook.id, slot)
            slot.gone = "reset"

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

    async def _ensure(self, notebook: Notebook, slot: _Slot) -> str:
        if slot.kernel is not None and slot.kernel.alive:
            return ""
        if slot.kernel is not None:  # it died between two runs
            slot.gone = slot.gone or "its process died between two runs"
            await self._end(notebook.id, slot)
        if not self._store.hold(notebook.id):
            raise HeldElsewhere(
                f"Notebook {notebook.name!r} is being run by another Quire server on this data directory. "
                "Use another notebook (create_notebook), or end that server."
            )
        try:
            spec = KernelSpec(notebook=notebook.id, workspace=self._workspace(notebook))
            slot.kernel = await self._runtimes[notebook.runtime].start(spec)
        except BaseException:
            self._store.release(notebook.id)
            raise
        slot.used_at = math.inf
        gone, slot.gone = slot.gone, ""
        if gone == "reset" or not notebook.runs:
            return ""
        why = gone or "the server was started anew since"
        return f"This is a fresh kernel: {why}. Variables of earlier cells are gone; run those cells again."

    async def _end(self, id_: NotebookId, slot: _Slot) -> None:
        kernel, slot.kernel = slot.kernel, None
        if kernel is not None:
            with anyio.CancelScope(shield=True):
                await kernel.close()
            self._store.release(id_)
