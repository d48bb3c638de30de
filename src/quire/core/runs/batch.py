"""Running several cells in order until one fails. Like a run, a batch goes on if the caller stops waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from quire.core.errors import QuireError
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Cell, Notebook
from quire.core.runs.active_run import ActiveRun, StopReason
from quire.core.runs.service import Runs


@dataclass(eq=False)
class Batch:
    notebook: Notebook
    cells: list[Cell]
    ran: list[Cell] = field(default_factory=list)  # with their outputs, in order; the last may still run
    active: ActiveRun | None = None
    error: QuireError | None = None
    notices: list[str] = field(default_factory=list)
    stopped: bool = False
    done: anyio.Event = field(default_factory=anyio.Event)

    def stop(self) -> None:
        self.stopped = True
        if self.active is not None:
            self.active.stop(StopReason.INTERRUPT)


class Batches:
    def __init__(
        self, runs: Runs, slots: KernelSlots, call_wait_seconds: float, start_soon: Callable[..., Any]
    ) -> None:
        self._runs = runs
        self._slots = slots
        self._call_wait_seconds = call_wait_seconds  # seconds a caller waits
        self._start_soon = start_soon

    async def run(
        self,
        notebook: Notebook,
        cells: list[Cell],
        timeout: float | None,
        tick: Callable[[Batch], Awaitable[None]],
    ) -> Batch:
        """Return the batch when it is done, or as it is when call_wait_seconds ends. Cancelling the wait stops it."""
        batch = Batch(notebook, cells)
        self._start_soon(self._drive, batch, timeout)
        end = anyio.current_time() + self._call_wait_seconds
        try:
            while not batch.done.is_set() and (left := end - anyio.current_time()) > 0:
                with anyio.move_on_after(min(1.0, left)):
                    await batch.done.wait()
                if not batch.done.is_set():
                    await tick(batch)
        except anyio.get_cancelled_exc_class():
            batch.stop()
            raise
        if batch.error is not None and not batch.ran:
            raise batch.error
        if not batch.done.is_set() and batch.active is not None and batch.active.cell is not None:
            batch.ran.append(batch.active.now())
        return batch

    async def _drive(self, batch: Batch, timeout: float | None) -> None:
        try:
            for cell in batch.cells:
                if batch.stopped:
                    break
                self._slots.get(batch.notebook).lineage.enter_burst()
                batch.active = await self._runs.start(batch.notebook, cell, timeout=timeout)
                await batch.active.done.wait()
                if batch.active.notice:
                    batch.notices.append(batch.active.notice)
                if batch.active.error is not None:
                    raise batch.active.error
                batch.ran.append(batch.active.now())
                if batch.ran[-1].state.failed:
                    break
        except QuireError as error:
            batch.error = error
        finally:
            batch.done.set()
