"""Where tools meet the core: which notebook is meant, running with progress, errors as answers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from fastmcp import Context
from fastmcp.tools import ToolResult
from mcp_types import TextContent

from quire.core.app import App
from quire.core.capabilities import description
from quire.core.checkpoints.saved_states import SavedStates
from quire.core.errors import InvalidRequest, QuireError
from quire.core.model import LOCAL, Cell, CellState, Notebook, RunId, Snapshot
from quire.core.notebooks.access import Access, Caller
from quire.core.notebooks.current import Client
from quire.core.runs.active_run import ActiveRun
from quire.core.runs.batch import Batch
from quire.core.runs.model_text import settled
from quire.frontends.mcp import callers, elicitation, recorded
from quire.frontends.mcp.guidance import Guidance
from quire.frontends.mcp.notices import Notices
from quire.frontends.mcp.render import Renderer
from quire.frontends.mcp.results import NotebookInfo

_TURN = "It waits for its turn: another cell of this notebook runs."
_SAY = 1.0  # seconds a progress message may take to send


def now_current(client: Client) -> str:
    """What to say of a notebook that was made current, after its name."""
    if client.is_shared:
        return ". Name it in each call: over HTTP, protocol 2026-07-28 has no current notebook."
    return ", now current."


class Desk:
    """One for a server."""

    def __init__(self, app: App, guidance: Guidance, result_chars: int) -> None:
        self.app = app
        self._guidance = guidance
        self.result_chars = result_chars
        self.render = Renderer(app.notebooks, guidance, result_chars)
        self.notices: Notices | None = None  # once the server runs
        self._asking = elicitation.Asking()

    def client(self, ctx: Context) -> Client:
        if self.notices is not None:
            self.notices.seen(ctx.session, callers.caller())
        return callers.client(ctx)

    async def notebook(self, ctx: Context, name: str | None, needed: Access = Access.WRITE) -> Notebook:
        name = name or self._asking.notebook(ctx)
        found = await self.app.current.notebook(self.client(ctx), name, needed)
        recorded.current().notebook = found.name
        recorded.current().beside = self.app.jupyter.unsaved(found)
        return found

    async def entries(self, ctx: Context, notebook: Notebook) -> list[dict[str, Any]]:
        """The capabilities its code has, those of its own included; to whoever may only read it, these alone."""
        relayed: list[dict[str, Any]] = []
        if await self.app.sharing.may(self.client(ctx), notebook, Access.WRITE):
            await self.app.capabilities.refresh(notebook.owner)
            relayed = (await self.app.capabilities.catalog(notebook.owner)).entries
        return description.merge_entries(relayed, self.app.relay.native_of(notebook.id))

    async def cell(self, notebook: Notebook, which: str | int) -> Cell:
        """The cell as it is this moment: of a running one, with what it has shown so far."""
        return self.app.runs.live(notebook, await self.app.notebooks.cell(notebook, which))

    async def run(
        self,
        ctx: Context,
        notebook: Notebook,
        code: str | Cell,
        *,
        at: int | None = None,
        timeout: float | None = None,
        asks: bool = True,
        answers: bool = False,
    ) -> tuple[Cell, str]:
        """Run and wait, telling the client every second what was printed last; the cell, and a notice.

        With `asks` a person answers the code's input(), where the client can ask one: the tool must come here
        first, since a client may have to call it again with the answer. A tool that `answers` with this and does
        nothing else hears how it ended before that is on disk: the answer is written meanwhile, and leaves when it is.
        """
        asks = asks and elicitation.possible(ctx)
        reply = self._asking.reply(ctx, notebook) if asks else None
        active = (
            reply.active
            if reply
            else await self.app.runs.start(notebook, code, at=at, timeout=timeout, author=_author(callers.caller()))
        )
        call = recorded.current()
        call.active = active

        async def tick(run: ActiveRun) -> None:
            elapsed = anyio.current_time() - run.started_at if run.started_at else 0.0
            doing = run.waits if run.queued is not None else run.doing or run.transcript.last_line()
            said = settled(doing) or ("running" if elapsed else "waiting to begin")
            with anyio.move_on_after(_SAY):
                await ctx.report_progress(elapsed, run.timeout, said)

        with active.listening() if asks else contextlib.nullcontext():
            if reply:
                reply.give()
            cell = await self.app.runs.wait(active, tick=tick, asks=asks, early=True)
            while active.question is not None and asks:
                await self._asking.ask(ctx, active, active.question)
                cell = await self.app.runs.wait(active, tick=tick, asks=asks, early=True)
        if not (answers and call.is_recorded):
            await active.kept()
        call.ran(notebook, cell, waits=active.cell is None)
        if active.cell is None:
            return cell, f"{active.waits or _TURN} {self._guidance.waits()}"
        return cell, active.notice

    async def run_several(
        self, ctx: Context, notebook: Notebook, cells: list[Cell], timeout: float | None
    ) -> ToolResult:
        """Run these in order until one fails, telling the client every second how far it is."""

        async def tick(batch: Batch) -> None:
            last = settled(batch.active.transcript.last_line()) if batch.active is not None else ""
            with anyio.move_on_after(_SAY):
                await ctx.report_progress(len(batch.ran), len(cells), last or "running")

        batch = await self.app.batches.run(notebook, cells, timeout, tick)
        notices = [*batch.notices, *([str(batch.error)] if batch.error is not None else [])]
        if not batch.ran:
            notices.append((batch.active.waits if batch.active is not None else "") or _TURN)
            recorded.current().ran(notebook, cells[0], waits=True)
            return await self.render.several(notebook, cells[:1], " ".join(notices))
        recorded.current().ran(notebook, batch.ran[-1])
        left = len(cells) - len(batch.ran)
        if batch.ran[-1].state.failed and left:
            notices.append(f"Stopped at the failed cell; {left} more did not run.")
        elif left:
            notices.append(f"{left} more follow by themselves: {self._guidance.follow()}")
        return await self.render.several(notebook, batch.ran, " ".join(notices))

    def saving(self) -> SavedStates:
        if self.app.saved_states is None:
            raise InvalidRequest("Nothing is kept here: the setting store is `memory`. Nothing was saved.")
        return self.app.saved_states

    async def cell_of(self, notebook: Notebook, run: RunId | None) -> Cell | None:
        return await self.app.notebooks.cell_of(notebook, run) if run is not None else None

    async def run_again(self, ctx: Context, notebook: Notebook, cells: list[Cell]) -> str:
        """Run these in order, until one fails; what to say about it."""
        done = []
        for cell in cells:
            done.append((await self.run(ctx, notebook, cell, asks=False))[0])
            if done[-1].state is not CellState.SUCCESS:
                break
        said = ", ".join(f"{cell.number} ({cell.state})" for cell in done)
        return f" Ran again: cell{'s' * (len(done) > 1)} {said}." if done else ""

    async def info(self, ctx: Context, notebook: Notebook) -> NotebookInfo:
        app = self.app
        current = app.current.peek(self.client(ctx))
        kernel, asleep = await kernel_state(app, notebook)
        info: NotebookInfo = {
            "name": notebook.title,
            "runtime": notebook.runtime,
            "cells": notebook.cells,
            "runs": notebook.runs,
            "kernel": kernel,
            "current": notebook.title == current,
            "workspace": app.workspace(notebook),
            "protection": protection(app, notebook) if asleep is None else on_disk(asleep),
        }
        if asleep is not None:
            info["wake_seconds"] = round(asleep.seconds, 3)
        return info


def _author(caller: Caller) -> str:
    return "agent" if caller.principal == LOCAL else f"user {caller.principal}"


async def kernel_state(app: App, notebook: Notebook) -> tuple[str, Snapshot | None]:
    """How the kernel is; where it sleeps on disk, with what it would wake to."""
    if app.runs.current(notebook) is not None:
        return "running", None
    if app.kernels.slots.live_kernel(notebook) is not None:
        return "idle", None
    if app.restorer is None or not (notebook.runs or notebook.origin):  # it holds nothing that could sleep
        return "not started", None
    asleep = await app.restorer.find_latest(notebook)
    return ("hibernated", asleep) if asleep is not None else ("not started", None)


def on_disk(asleep: Snapshot) -> str:
    """What a kernel that sleeps on disk would wake to, in a line."""
    lost = ", ".join(each.name for each in asleep.lost)
    return f"on disk, but for {lost}" if lost else "all of it is on disk"


def protection(app: App, notebook: Notebook) -> str:
    """What a crash would cost now, in a line."""
    if notebook.document is not None:
        return "none, since a kernel of a Jupyter server can be neither copied nor written down"
    now = app.checkpoints.protection(notebook)
    if now.quality == "none":
        since = f" since run {now.run}" if now.run is not None else ""
        return f"unprotected{since}: {now.why}"
    upto = f"up to run {now.run}" if now.run is not None else "nothing has run yet"
    return f"{now.quality}, {upto}" + (f"; a crash would lose: {now.why}" if now.why else "")


def refusals(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """What the core refuses becomes the tool's error answer, in the core's words."""

    @functools.wraps(tool)
    async def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return _with(await tool(*args, **kwargs), recorded.current().beside)
        except QuireError as error:
            recorded.current().failed(error)
            return ToolResult(content=str(error), is_error=True)
        except elicitation.ClientMustAsk as question:
            recorded.current().outcome = "asked"
            return question.result

    return translated


def _with(answer: Any, beside: str) -> Any:
    """The answer, with what concerns its notebook and not the call."""
    if beside and isinstance(answer, ToolResult):
        answer.content.append(TextContent(type="text", text=f"[WARNING] {beside}"))
        if answer.structured_content is not None:
            notices = (answer.structured_content.get("notice"), beside)
            answer.structured_content["notice"] = " ".join(filter(None, notices))
    return answer
