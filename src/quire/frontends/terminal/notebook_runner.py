"""Runs the cells of a document in order, shows progress, saves the document, and stops on signals."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from quire.core.app import App
from quire.core.errors import QuireError
from quire.core.model import Cell, CellState, Notebook
from quire.core.ops.task_groups import background
from quire.core.runs.active_run import ActiveRun, StopReason
from quire.frontends.terminal import documents, parameters
from quire.frontends.terminal.progress import Watching
from quire.frontends.terminal.saved import Saved
from quire.wire.messages import Event

_MAY_FAIL = "raises-exception"
READ_ENOUGH = getattr(signal, "SIGPIPE", signal.SIGTERM)  # Windows has none
_OVER = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


class NotebookRunner:
    """Runs one document."""

    def __init__(
        self,
        app: App,
        notebook: Notebook,
        watching: Watching,
        stopping: Stopping,
        *,
        output: Path | None,
        allow_errors: bool,
    ) -> None:
        self._app = app
        self._notebook = notebook
        self._output = output
        self._allow_errors = allow_errors
        self._watching = watching
        self._stopping = stopping
        self._saved = Saved(output, self._text, watching.say) if output is not None else None
        self.ran = 0
        self.failed: list[tuple[int, CellState]] = []  # position, counted from 1, and state
        stopping.kill = self._kill

    async def run_all(self, cells: list[Cell]) -> None:
        """Run the cells until one fails that may not or a signal stops it. Cells that ran are saved in every case."""
        try:
            async with background() as group:
                for place, cell in enumerate(cells, 1):
                    if self._stopping.told or await self._run(place, cell, group):
                        break
        except QuireError:
            if self.ran:
                await self._save()
            raise
        if self.ran or not self._stopping.told:
            await self._save()

    async def _run(self, place: int, cell: Cell, group: TaskGroup) -> bool:
        """Run one cell. Returns whether it was the last."""
        active = await self._app.runs.start(self._notebook, cell, author="command line", on_event=self._heard)
        self._stopping.take(active)
        self._watching.begun(place, active)
        await active.begun.wait()
        if self._saved is not None and place == 1:  # not before: if no kernel starts, the file is not changed
            group.start_soon(self._saved.keep)
        await active.done.wait()
        self._stopping.active = None
        if active.error is not None:
            raise active.error
        if active.cell is None:
            return True  # stopped before it began
        return self._ended(place, await self._app.outputs.load(active.now()))

    def _ended(self, place: int, cell: Cell) -> bool:
        self.ran = place
        own = cell.state is CellState.ERROR or (cell.state is CellState.INTERRUPTED and not self._stopping.told)
        expected = own and parameters.tagged(cell.metadata, _MAY_FAIL)
        if cell.state.failed and not expected:
            self.failed.append((place, cell.state))
        fatal = cell.state.failed and not expected and not (own and self._allow_errors)
        if self._saved is not None:
            self._saved.ended()
        self._watching.ended(place, cell, fatal=fatal)
        return fatal

    def _heard(self, event: Event) -> None:
        self._watching.heard(event)
        if self._saved is not None:
            self._saved.heard()

    async def _save(self) -> None:
        if self._saved is not None:
            await self._saved.finish()

    async def _text(self) -> str:
        """The document with the current outputs."""
        cells = [self._app.runs.live(self._notebook, cell) for cell in await self._app.cells.list_cells(self._notebook)]
        whole = [_timed(await self._app.outputs.load(cell)) for cell in cells]
        return documents.dumps(str(self._output or ""), self._notebook, whole)

    async def _kill(self) -> None:
        kernel = self._app.kernels.slots.live_kernel(self._notebook)
        if kernel is not None:
            await kernel.kill()


def _timed(cell: Cell) -> Cell:
    """With the times of the run in the metadata that JupyterLab reads."""
    if cell.run is None or cell.run.seconds is None or cell.run.author == "import" or cell.state is CellState.RUNNING:
        return cell
    begun, ended = (
        datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        for at in (cell.run.started_at, cell.run.started_at + cell.run.seconds)
    )
    times = {
        "iopub.status.busy": begun,
        "iopub.execute_input": begun,
        "shell.execute_reply": ended,
        "iopub.status.idle": ended,
    }
    return replace(cell, metadata={**cell.metadata, "execution": times})


class Stopping:
    """Stops the run on signals: the first one interrupts the running cell, the second one kills it."""

    def __init__(self) -> None:
        self.told = 0  # the first signal
        self.unwritable: OSError | None = None  # why standard output cannot be written
        self.active: ActiveRun | None = None
        self.kill: Callable[[], Awaitable[None]] | None = None

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Handle signals until cancelled. Signals that the parent process ignores stay ignored."""
        if sys.platform == "win32":  # its event loop gets no signals: Ctrl-C ends the command
            task_status.started()
            return
        handled = [number for number in _OVER if signal.getsignal(number) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*handled) as signals:
            task_status.started()
            async for number in signals:
                if not self.told:
                    self.stop(number)
                elif self.active is not None and self.kill is not None:
                    await self.kill()

    def take(self, active: ActiveRun) -> None:
        """The run that signals stop; interrupts it if a signal came while it was starting."""
        self.active = active
        if self.told:
            active.stop(StopReason.INTERRUPT)

    def stop(self, number: int) -> None:
        self.told = self.told or number
        if self.active is not None:
            self.active.stop(StopReason.INTERRUPT)

    def unheard(self, error: OSError) -> None:
        """Standard output cannot be written: stop."""
        self.unwritable = self.unwritable or error
        self.stop(READ_ENOUGH)
