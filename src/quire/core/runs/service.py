"""The run service: start runs, wait for them, interrupt them.

A run belongs to this service, not to the request that started it. If the caller stops waiting, the run goes on and
its outcome is recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from quire.core.capabilities.gateway import CapabilityGateway
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.kernels.pool import KernelPool
from quire.core.limits.validation import Limits
from quire.core.limits.workspace_quota import WorkspaceQuota
from quire.core.model import Cell, CellKind, CellState, NewCell, Notebook
from quire.core.ops.task_groups import background
from quire.core.runs.active_run import STOP_IT, ActiveRun, ActiveRuns, StopReason
from quire.core.runs.driver import RunDriver
from quire.core.runs.queue import RunQueue
from quire.core.runs.recorder import Recorder
from quire.wire.messages import Event


class Runs:
    def __init__(
        self,
        kernels: KernelPool,
        active: ActiveRuns,
        queue: RunQueue,
        quota: WorkspaceQuota,
        gateway: CapabilityGateway,
        recorder: Recorder,
        limits: Limits,
    ) -> None:
        self._kernels = kernels
        self._active = active
        self._queue = queue
        self._driver = RunDriver(kernels, active, queue, quota, gateway, recorder, limits)
        self._recorder = recorder
        self._limits = limits
        self._group: TaskGroup | None = None
        self._is_shutting_down = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accept runs as long as the block lasts. Leaving it interrupts and records what still runs."""
        async with background() as self._group:
            self._group.start_soon(self._recorder.write_new_output)
            yield

    def announce_shutdown(self) -> None:
        """Callers are about to be disconnected: from now on this does not interrupt their runs."""
        self._is_shutting_down = True

    async def prestart(self, notebook: Notebook) -> None:
        """Start the notebook's kernel before its first run."""
        if self._group is not None:
            await self._kernels.start_ahead(notebook, self._group)

    async def start(
        self,
        notebook: Notebook,
        code: str | Cell,
        *,
        at: int | None = None,
        timeout: float | None = None,
        author: str = "agent",
        on_event: Callable[[Event], None] | None = None,
    ) -> ActiveRun:
        """Start a run of new code, as a cell at position `at`, or of an existing cell.

        `on_event` is called with each event that the run shows. It returns at once and never raises.
        """
        timeout = self._limits.check_timeout(timeout)
        target = self._check_cell(notebook, code) if isinstance(code, Cell) else NewCell(source=code)
        self._limits.check_code(target.source)
        state = self._driver.new_run(notebook, target, timeout, author, on_event)
        if isinstance(target, NewCell) and (at is not None or self._kernels.slots.is_busy(notebook)):
            await self._queue.add_cell(state, at)
        if self._group is None:
            raise OperationFailed("Quire is shutting down; nothing was run.")
        self._active.add(state)
        self._group.start_soon(self._driver.drive, state)
        return state

    def _check_cell(self, notebook: Notebook, cell: Cell) -> Cell:
        if cell.kind is not CellKind.CODE:
            raise InvalidRequest(f"Cell {cell.number} is {cell.kind}, not code: there is nothing to run.")
        if cell.state is CellState.RUNNING and self._find(notebook, cell) is not None:
            raise InvalidRequest(f"Cell {cell.number} is running already. {STOP_IT}")
        return cell

    async def wait(
        self,
        active: ActiveRun,
        call_wait_seconds: float | None = None,
        tick: Callable[[ActiveRun], Awaitable[None]] | None = None,
        *,
        until_question: bool = False,
        before_persisted: bool = False,
    ) -> Cell:
        """Return the cell when its run ends, or as it is after `call_wait_seconds` or at a question.

        `tick` is called every second. Cancelling the wait interrupts the run. With `before_persisted` the outcome is
        returned before it is on disk; the caller must not pass it on before `ActiveRun.wait_persisted` returns.
        """
        end = anyio.current_time() + (
            self._limits.call_wait_seconds if call_wait_seconds is None else call_wait_seconds
        )
        ended = active.outcome_known if before_persisted else active.done
        try:
            while not ended.is_set() and (left := end - anyio.current_time()) > 0:
                with anyio.move_on_after(min(1.0, left)):
                    if not until_question:
                        await ended.wait()
                    else:
                        await _wait_any(ended, active)
                        if active.questions.first is not None:
                            return active.now()
                if tick is not None and not ended.is_set():
                    await tick(active)
            if active.cell is None and isinstance(active.target, Cell) and not ended.is_set():
                return active.target  # it waits for its turn
            if not active.begun.is_set():  # the start of a kernel has a timeout of its own
                await active.begun.wait()
        except anyio.get_cancelled_exc_class():
            if not self._is_shutting_down:
                active.stop(StopReason.INTERRUPT)
            raise
        if active.error is not None:
            raise active.error
        return active.outcome() if before_persisted else active.now()

    async def interrupt(self, notebook: Notebook) -> Cell:
        """Stop the notebook's run, or the one that waits for a slot. Returns when it has stopped."""
        active = self._active.current(notebook.id) or self._active.queued(notebook.id)
        if active is None:
            raise NotFound(f"Nothing is running in notebook {notebook.name!r}; nothing was interrupted.")
        active.stop(StopReason.INTERRUPT)
        await active.done.wait()
        if active.cell is None and isinstance(active.target, Cell):
            return active.target  # it had not begun
        if active.error is not None:
            raise active.error
        return active.now()

    def current(self, notebook: Notebook) -> ActiveRun | None:
        """The run that has begun in the notebook."""
        return self._active.current(notebook.id)

    def count(self) -> tuple[int, int]:
        """How many runs have begun, and how many wait."""
        return self._active.count()

    def live(self, notebook: Notebook, cell: Cell) -> Cell:
        """The cell as it is now, with the output so far if it runs."""
        active = self._find(notebook, cell)
        return replace(cell, run=active.now().run) if active is not None else cell

    def _find(self, notebook: Notebook, cell: Cell) -> ActiveRun | None:
        runs = self._active.list_runs(notebook.id)
        return next((run for run in runs if run.cell is not None and run.cell.id == cell.id), None)


async def _wait_any(ended: anyio.Event, active: ActiveRun) -> None:
    """Wait until the run ends or asks a person."""

    async def cancel_at_end() -> None:
        await ended.wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(cancel_at_end)
        await active.questions.wait_asked()
        group.cancel_scope.cancel()
