"""The `repl` tool set: run code, see what there is, save and restore it, stop, start clean."""

from typing import Literal

from fastmcp import Context
from fastmcp.tools import ToolResult

from quire.core.checkpoints import restore_report
from quire.core.limits import sandbox_layers
from quire.core.model import Notebook
from quire.core.notebooks.access import Access
from quire.core.phrases import count
from quire.frontends.mcp import render
from quire.frontends.mcp.desk import Desk, kernel_state, on_disk, protection
from quire.frontends.mcp.results import CellInfo, Done, ExecutionResult, RolledBack, SavedState, StateInfo
from quire.frontends.mcp.toolsets import Shelf

Replay = Literal["never", "ask", "always"]


def register(shelf: Shelf, desk: Desk) -> None:
    async def execute(ctx: Context, code: str, timeout: float | None = None, notebook: str | None = None) -> ToolResult:
        """Run Python in a namespace that stays; the last expression's value comes back. Adds a cell.
        Plots show by themselves; top-level await works. timeout is in seconds."""
        book = await desk.notebook(ctx, notebook)
        cell, notice = await desk.run(ctx, book, code, timeout=timeout, answers=True)
        return await desk.render.execution(book, cell, notice)

    async def state(ctx: Context, notebook: str | None = None) -> ToolResult:
        """What the namespace holds now: variables with type and size, functions, capabilities; how the kernel is."""
        book = await desk.notebook(ctx, notebook, Access.READ)
        kernel, asleep = await kernel_state(desk.app, book)
        found = asleep if asleep is not None else await desk.app.inspector.inspect(book)
        info: StateInfo = {
            "notebook": book.title,
            "kernel": kernel,
            "defined_functions": [
                {"name": each["name"], "signature": each["signature"], "docstring": each["docstring"]}
                for each in (found.functions if found else [])
            ],
            "variables": found.variables if found else {},
            "capabilities": await _capabilities(desk, ctx, book),
            "history_length": book.runs,
            "runtime": book.runtime,
            "sandbox": sandbox_layers.sentence((await desk.app.kernels.runtimes.describe(book.runtime)).layers),
            "protection": protection(desk.app, book) if asleep is None else on_disk(asleep),
        }
        lost = [restore_report.describe_lost([(each, None)]) for each in asleep.lost] if asleep is not None else []
        listed = found is not None or kernel == "not started"
        return ToolResult(content=_state_text(info, lost, listed=listed), structured_content=dict(info))

    async def reset(ctx: Context, notebook: str | None = None) -> ToolResult:
        """Start over with an empty namespace; cells and capabilities stay."""
        book = await desk.notebook(ctx, notebook)
        await desk.app.kernels.reset(book)
        done: Done = {
            "notebook": book.title,
            "message": f"Notebook {book.title!r} has an empty namespace; its cells are kept.",
        }
        return ToolResult(content=done["message"], structured_content=dict(done))

    async def interrupt(ctx: Context, notebook: str | None = None) -> ToolResult:
        """Stop the cell that runs now; variables are kept."""
        book = await desk.notebook(ctx, notebook)
        cell = await desk.app.runs.interrupt(book)
        info = render.describe(book, cell)
        return ToolResult(content=f"Stopped. {render.footer(book, cell)}", structured_content=dict(info))

    shelf.put(execute, "Execute code", ExecutionResult, runs=True)
    shelf.put(state, "Show state", StateInfo, reads=True)
    _register_saving(shelf, desk)
    shelf.put(reset, "Reset namespace", Done, destroys=True, repeats=True)
    shelf.put(interrupt, "Interrupt", CellInfo)


def _register_saving(shelf: Shelf, desk: Desk) -> None:
    async def save_state(ctx: Context, name: str = "default", notebook: str | None = None) -> ToolResult:
        """Save the namespace to disk under a name, to be restored at any time, after a restart too. It is saved by
        itself after runs as well; a name keeps it."""
        book = await desk.notebook(ctx, notebook)
        snapshot, file = await desk.saving().save(book, name)
        lost = [(each, await desk.cell_of(book, each.run)) for each in snapshot.lost]
        saved: SavedState = {
            "notebook": book.title,
            "name": name,
            "variables": len(snapshot.variables) + len(snapshot.functions) - len(lost),
            "bytes": snapshot.size,
            "file": file,
            "not_saved": [restore_report.describe_lost([each]) for each in lost],
        }
        said = f"Saved notebook {book.title!r} as {name!r}: {count(saved['variables'], 'variable')}"
        said += f", {render.size(snapshot.size)}. To read: {file}"
        if lost:
            said += f"\nNot saved: {restore_report.describe_lost(lost)}."
        return ToolResult(content=said, structured_content=dict(saved))

    async def restore_state(
        ctx: Context, name: str = "default", replay: Replay | None = None, notebook: str | None = None
    ) -> ToolResult:
        """Put the namespace back to a state saved by save_state; later cells stay, marked stale. replay="always" runs
        the cells again that make what could not be saved."""
        book = await desk.notebook(ctx, notebook)
        moved = await desk.app.timeline.restore(book, name)
        said = render.moved(moved)
        if moved.back is not None:
            said = f"{restore_report.describe_restore(moved.back, replay or 'ask')}{render.stale(moved)}"
            if replay == "always":
                said += await desk.run_again(ctx, book, moved.back.again)
        restored: RolledBack = {
            "notebook": book.title,
            "checkpoint": name,
            "stale_cells": list(moved.stale),
            "not_restored": list(moved.lost),
        }
        return ToolResult(content=said, structured_content=dict(restored))

    shelf.put(save_state, "Save state", SavedState, repeats=True)
    shelf.put(restore_state, "Restore state", RolledBack, destroys=True)


async def _capabilities(desk: Desk, ctx: Context, book: Notebook) -> list[str]:
    seen = await desk.app.sharing.may(desk.client(ctx), book, Access.WRITE)
    relayed = await desk.app.capabilities.all(book.owner) if seen else []
    said = [f"{each.name}: {count(len(each.offered.tools), 'method')}, {health}" for each, health in relayed]
    return said + [f"{each['name']}: made here" for each in desk.app.relay.native_of(book.id)]


def _state_text(info: StateInfo, lost: list[str], *, listed: bool) -> str:
    """`listed`: the kernel was asked for its variables, or has none."""
    lines = [f"notebook {info['notebook']}: kernel {info['kernel']}, {count(info['history_length'], 'run')}"]
    if info["kernel"] == "hibernated":
        lines.append("Its state is on disk, as listed; the next run wakes it.")
        lines += [f"not kept: {each}" for each in lost]
    elif info["kernel"] != "not started":
        lines.append(f"checkpoints: {info['protection']}")
    if info["kernel"] == "running":
        lines.append("A cell runs now; variables can be listed when it is done.")
    elif not listed:
        lines.append("The kernel could not be asked for its variables; call again.")
    lines += [f"{name}: {kind}" for name, kind in info["variables"].items()]
    for each in info["defined_functions"]:
        said = each["signature"]  # JavaScript's has the name in it
        named = f"def {each['name']}{said}" if not said or said.startswith("(") else said
        lines.append(f"{named}  {each['docstring']}".rstrip())
    lines += [f"capability {each}" for each in info["capabilities"]]
    if listed and not info["variables"] and not info["defined_functions"]:
        lines.append("no variables, no functions")
    return "\n".join(lines)
