"""The `repl` tool set: run code, see what there is, save and restore it, stop, start clean."""

from typing import Literal

from fastmcp.tools import ToolResult

from quire.core.checkpoints import restore_report
from quire.core.limits import sandbox_layers
from quire.core.model import Notebook
from quire.core.notebooks.access import Access
from quire.core.phrases import count
from quire.frontends.mcp import render
from quire.frontends.mcp.results import CellInfo, Done, ExecutionResult, RolledBack, SavedState, StateInfo
from quire.frontends.mcp.tool_context import ToolContext, kernel_state, on_disk, protection
from quire.frontends.mcp.tool_registry import ToolRegistry

Replay = Literal["never", "ask", "always"]


def register(registry: ToolRegistry) -> None:
    async def execute(
        ctx: ToolContext, code: str, timeout: float | None = None, notebook: str | None = None
    ) -> ToolResult:
        """Run Python in a namespace that stays; the last expression's value comes back. Adds a cell.
        Plots show by themselves; top-level await works. timeout is in seconds."""
        book = await ctx.notebook(notebook)
        cell, notice = await ctx.run(book, code, timeout=timeout, answers=True)
        return await ctx.render.execution(book, cell, notice)

    async def state(ctx: ToolContext, notebook: str | None = None) -> ToolResult:
        """What the namespace holds now: variables with type and size, functions, capabilities; how the kernel is."""
        book = await ctx.notebook(notebook, Access.READ)
        kernel, asleep = await kernel_state(ctx.app, book)
        found = asleep if asleep is not None else await ctx.app.inspector.inspect(book)
        info: StateInfo = {
            "notebook": book.title,
            "kernel": kernel,
            "defined_functions": [
                {"name": each["name"], "signature": each["signature"], "docstring": each["docstring"]}
                for each in (found.functions if found else [])
            ],
            "variables": found.variables if found else {},
            "capabilities": await _capabilities(ctx, book),
            "history_length": book.runs,
            "runtime": book.runtime,
            "sandbox": sandbox_layers.describe_layers((await ctx.app.kernels.runtimes.describe(book.runtime)).layers),
            "protection": protection(ctx.app, book) if asleep is None else on_disk(asleep),
        }
        lost = [restore_report.describe_lost([(each, None)]) for each in asleep.lost] if asleep is not None else []
        listed = found is not None or kernel == "not started"
        return ToolResult(content=_state_text(info, lost, listed=listed), structured_content=dict(info))

    async def reset(ctx: ToolContext, notebook: str | None = None) -> ToolResult:
        """Start over with an empty namespace; cells and capabilities stay."""
        book = await ctx.notebook(notebook)
        await ctx.app.kernels.reset(book)
        done: Done = {
            "notebook": book.title,
            "message": f"Notebook {book.title!r} has an empty namespace; its cells are kept.",
        }
        return ToolResult(content=done["message"], structured_content=dict(done))

    async def interrupt(ctx: ToolContext, notebook: str | None = None) -> ToolResult:
        """Stop the cell that runs now; variables are kept."""
        book = await ctx.notebook(notebook)
        cell = await ctx.app.runs.interrupt(book)
        info = render.describe(book, cell)
        return ToolResult(content=f"Stopped. {render.footer(book, cell)}", structured_content=dict(info))

    registry.add(execute, "Execute code", ExecutionResult, open_world=True)
    registry.add(state, "Show state", StateInfo, read_only=True)
    _register_saving(registry)
    registry.add(reset, "Reset namespace", Done, destructive=True, idempotent=True)
    registry.add(interrupt, "Interrupt", CellInfo)


def _register_saving(registry: ToolRegistry) -> None:
    async def save_state(ctx: ToolContext, name: str = "default", notebook: str | None = None) -> ToolResult:
        """Save the namespace to disk under a name, to be restored at any time, after a restart too. It is saved by
        itself after runs as well; a name keeps it."""
        book = await ctx.notebook(notebook)
        snapshot, file = await ctx.saving().save(book, name)
        lost = [(each, await ctx.cell_of(book, each.run)) for each in snapshot.lost]
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
        ctx: ToolContext, name: str = "default", replay: Replay | None = None, notebook: str | None = None
    ) -> ToolResult:
        """Put the namespace back to a state saved by save_state; later cells stay, marked stale. replay="always" runs
        the cells again that make what could not be saved."""
        book = await ctx.notebook(notebook)
        moved = await ctx.app.timeline.restore(book, name)
        said = render.moved(moved)
        if moved.back is not None:
            said = f"{restore_report.describe_restore(moved.back, replay or 'ask')}{render.stale(moved)}"
            if replay == "always":
                said += await ctx.run_again(book, moved.back.again)
        restored: RolledBack = {
            "notebook": book.title,
            "checkpoint": name,
            "stale_cells": list(moved.stale),
            "not_restored": list(moved.lost),
        }
        return ToolResult(content=said, structured_content=dict(restored))

    registry.add(save_state, "Save state", SavedState, idempotent=True)
    registry.add(restore_state, "Restore state", RolledBack, destructive=True)


async def _capabilities(ctx: ToolContext, book: Notebook) -> list[str]:
    seen = await ctx.app.sharing.has_access(ctx.client, book, Access.WRITE)
    relayed = await ctx.app.capabilities.all(book.owner) if seen else []
    said = [f"{each.name}: {count(len(each.offered.tools), 'method')}, {health}" for each, health in relayed]
    return said + [f"{each['name']}: made here" for each in ctx.app.gateway.native_of(book.id)]


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
