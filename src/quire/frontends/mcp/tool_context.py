"""What tools get: the services of a server, and one call of a client."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import anyio
from fastmcp.tools import ToolResult

from quire.core.app import App
from quire.core.capabilities import description
from quire.core.checkpoints.saved_states import SavedStates
from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, Cell, CellState, Notebook, RunId, Snapshot
from quire.core.notebooks.access import Access, Caller
from quire.core.notebooks.current import Client
from quire.core.runs.active_run import ActiveRun
from quire.core.runs.batch import Batch
from quire.core.runs.model_text import final_text
from quire.frontends.mcp.audit_middleware import CallRecord
from quire.frontends.mcp.client_request import ClientRequest
from quire.frontends.mcp.elicitation import Asking, possible
from quire.frontends.mcp.guidance import Guidance
from quire.frontends.mcp.notices import Notices
from quire.frontends.mcp.render import Renderer
from quire.frontends.mcp.results import NotebookInfo

_QUEUED = "It waits for its turn: another cell of this notebook runs."
_PROGRESS_TIMEOUT_S = 1.0


def now_current(client: Client) -> str:
    """What to say after the name of a notebook that was made current."""
    if client.is_shared:
        return ". Name it in each call: over HTTP, protocol 2026-07-28 has no current notebook."
    return ", now current."


@dataclass(frozen=True, kw_only=True)
class ToolServices:
    """One for a server."""

    app: App
    guidance: Guidance
    notices: Notices
    render: Renderer
    result_chars: int
    asking: Asking = field(default_factory=Asking)


class ToolContext:
    """One call of a client: who calls, the services that tools use, and the record for the audit log."""

    def __init__(self, services: ToolServices, request: ClientRequest, record: CallRecord) -> None:
        self.app = services.app
        self.render = services.render
        self.result_chars = services.result_chars
        self.client = request.client
        self.record = record
        self._request = request
        self._asking = services.asking
        self._guidance = services.guidance
        services.notices.seen(request.session, request.client)

    async def notebook(self, name: str | None, needed: Access = Access.WRITE) -> Notebook:
        """The named notebook or the current one. Raises NotFound if the client has no such access to it."""
        name = name or self._asking.notebook(self._request)
        found = await self.app.current.resolve(self.client, name, needed)
        self.record.notebook = found.name
        self.record.warning = self.app.jupyter.unsaved(found)
        return found

    async def entries(self, notebook: Notebook) -> list[dict[str, Any]]:
        """The capabilities that the notebook's code has. Clients that may only read see those of its own code."""
        relayed: list[dict[str, Any]] = []
        if await self.app.sharing.has_access(self.client, notebook, Access.WRITE):
            await self.app.capabilities.refresh(notebook.owner)
            relayed = (await self.app.capabilities.catalog(notebook.owner)).entries
        return description.merge_entries(relayed, self.app.gateway.native_of(notebook.id))

    async def cell(self, notebook: Notebook, which: str | int) -> Cell:
        """The cell as it is now: a running one with the output so far."""
        return self.app.runs.live(notebook, await self.app.cells.get(notebook, which))

    async def run(
        self,
        notebook: Notebook,
        code: str | Cell,
        *,
        at: int | None = None,
        timeout: float | None = None,
        asks: bool = True,
        answers: bool = False,
    ) -> tuple[Cell, str]:
        """Run and wait, and report progress with the last line printed. Returns the cell and a notice.

        With `asks` a person answers the code's input(), if the client can ask one. The tool must do nothing before
        this call then, since a client may have to call the tool again with the answer. `answers`: the tool answers
        with this run and does nothing else. It gets the result before it is on disk and can render it meanwhile;
        the audit step sends the answer when the run is on disk.
        """
        asks = asks and possible(self._request)
        reply = self._asking.reply(self._request, notebook) if asks else None
        active = (
            reply.active
            if reply
            else await self.app.runs.start(notebook, code, at=at, timeout=timeout, author=_author(self.client))
        )
        self.record.active = active

        async def tick(run: ActiveRun) -> None:
            elapsed = anyio.current_time() - run.started_at if run.started_at else 0.0
            message = final_text(run.progress()) or ("running" if elapsed else "waiting to begin")
            with anyio.move_on_after(_PROGRESS_TIMEOUT_S):
                await self._request.report_progress(elapsed, run.timeout, message)

        with active.questions.listening() if asks else contextlib.nullcontext():
            if reply:
                reply.give()
            cell = await self.app.runs.wait(active, tick=tick, until_question=asks, before_persisted=True)
            while asks and (question := active.questions.first) is not None:
                await self._asking.ask(self._request, active, question)
                cell = await self.app.runs.wait(active, tick=tick, until_question=asks, before_persisted=True)
        if not answers:
            await active.wait_persisted()
        self.record.set_run(notebook, cell, queued=active.cell is None)
        if active.cell is None:
            return cell, f"{active.wait_reason or _QUEUED} {self._guidance.waits()}"
        return cell, active.notice

    async def run_several(self, notebook: Notebook, cells: list[Cell], timeout: float | None) -> ToolResult:
        """Run these in order until one fails, and report progress."""

        async def tick(batch: Batch) -> None:
            last = final_text(batch.active.progress()) if batch.active is not None else ""
            with anyio.move_on_after(_PROGRESS_TIMEOUT_S):
                await self._request.report_progress(len(batch.ran), len(cells), last or "running")

        batch = await self.app.batches.run(notebook, cells, timeout, tick)
        notices = [*batch.notices, *([str(batch.error)] if batch.error is not None else [])]
        if not batch.ran:
            notices.append((batch.active.wait_reason if batch.active is not None else "") or _QUEUED)
            self.record.set_run(notebook, cells[0], queued=True)
            return await self.render.several(notebook, cells[:1], " ".join(notices))
        self.record.set_run(notebook, batch.ran[-1])
        left = len(cells) - len(batch.ran)
        if batch.ran[-1].state.failed and left:
            notices.append(f"Stopped at the failed cell; {left} more did not run.")
        elif left:
            notices.append(f"{left} more follow by themselves: {self._guidance.follow()}")
        return await self.render.several(notebook, batch.ran, " ".join(notices))

    async def run_again(self, notebook: Notebook, cells: list[Cell]) -> str:
        """Run these in order until one fails. Returns a sentence about it."""
        done = []
        for cell in cells:
            done.append((await self.run(notebook, cell, asks=False))[0])
            if done[-1].state is not CellState.SUCCESS:
                break
        ran = ", ".join(f"{cell.number} ({cell.state})" for cell in done)
        return f" Ran again: cell{'s' * (len(done) > 1)} {ran}." if done else ""

    def saving(self) -> SavedStates:
        """Raises InvalidRequest if nothing is kept on disk."""
        if self.app.saved_states is None:
            raise InvalidRequest("Nothing is kept here: the setting store.kind is `memory`. Nothing was saved.")
        return self.app.saved_states

    async def cell_of(self, notebook: Notebook, run: RunId | None) -> Cell | None:
        return await self.app.cells.find_by_run(notebook, run) if run is not None else None

    async def info(self, notebook: Notebook) -> NotebookInfo:
        app = self.app
        kernel, asleep = await kernel_state(app, notebook)
        info: NotebookInfo = {
            "name": notebook.title,
            "runtime": notebook.runtime,
            "cells": notebook.cells,
            "runs": notebook.runs,
            "kernel": kernel,
            "current": notebook.title == app.current.peek_name(self.client),
            "workspace": app.workspace(notebook),
            "protection": protection(app, notebook) if asleep is None else on_disk(asleep),
        }
        if asleep is not None:
            info["wake_seconds"] = round(asleep.seconds, 3)
        return info


def _author(caller: Caller) -> str:
    return "agent" if caller.principal == LOCAL else f"user {caller.principal}"


async def kernel_state(app: App, notebook: Notebook) -> tuple[str, Snapshot | None]:
    """The kernel's state, and the snapshot that a hibernated one wakes from."""
    if app.runs.current(notebook) is not None:
        return "running", None
    if app.kernels.slots.live_kernel(notebook) is not None:
        return "idle", None
    if app.restorer is None or not (notebook.runs or notebook.origin):  # there is nothing to restore
        return "not started", None
    asleep = await app.restorer.find_latest(notebook)
    return ("hibernated", asleep) if asleep is not None else ("not started", None)


def on_disk(asleep: Snapshot) -> str:
    """What a hibernated kernel would wake to, in a line."""
    lost = ", ".join(each.name for each in asleep.lost)
    return f"on disk, but for {lost}" if lost else "all of it is on disk"


def protection(app: App, notebook: Notebook) -> str:
    """What a crash would lose now, in a line."""
    if notebook.document is not None:
        return "none, since a kernel of a Jupyter server can be neither copied nor written down"
    now = app.checkpoints.protection(notebook)
    if now.quality == "none":
        since = f" since run {now.run}" if now.run is not None else ""
        return f"unprotected{since}: {now.why}"
    upto = f"up to run {now.run}" if now.run is not None else "nothing has run yet"
    return f"{now.quality}, {upto}" + (f"; a crash would lose: {now.why}" if now.why else "")
