"""The `timeline` tool set: step back to an earlier state, or try a second way from it."""

from fastmcp.tools import ToolResult

from quire.core.checkpoints.checkpoint_list import Checkpoint
from quire.core.notebooks.access import Access
from quire.core.phrases import count
from quire.frontends.mcp import render
from quire.frontends.mcp.results import CheckpointInfo, CheckpointList, NotebookInfo, RolledBack
from quire.frontends.mcp.tool_context import ToolContext, kernel_state, now_current, on_disk, protection
from quire.frontends.mcp.tool_registry import ToolRegistry


def register(registry: ToolRegistry) -> None:
    async def list_checkpoints(ctx: ToolContext, notebook: str | None = None) -> ToolResult:
        """The earlier states rollback and branch_notebook can go to, and what each would lose."""
        book = await ctx.notebook(notebook, Access.READ)
        found = [_info(each) for each in await ctx.app.checkpoints.list_checkpoints(book)]
        asleep = (await kernel_state(ctx.app, book))[1]
        listed: CheckpointList = {
            "notebook": book.title,
            "protection": protection(ctx.app, book) if asleep is None else on_disk(asleep),
            "checkpoints": found,
        }
        text = "\n".join([*map(_row, found), f"protection: {listed['protection']}"])
        return ToolResult(content=text, structured_content=dict(listed))

    async def rollback(ctx: ToolContext, to: int | str, notebook: str | None = None) -> ToolResult:
        """Put the namespace back to how it was after a cell (number or id), "before" a cell ("before 3"), at a
        checkpoint, or at "start". Later cells stay, marked stale. Files and connections are not rolled back."""
        book = await ctx.notebook(notebook)
        moved = await ctx.app.timeline.rollback(book, to)
        done: RolledBack = {
            "notebook": book.title,
            "checkpoint": moved.run or "start",
            "stale_cells": list(moved.stale),
            "not_restored": list(moved.lost),
        }
        return ToolResult(content=render.moved(moved), structured_content=dict(done))

    async def branch_notebook(
        ctx: ToolContext, name: str, at: int | str | None = None, use: bool = True, notebook: str | None = None
    ) -> ToolResult:
        """A new notebook that begins with the namespace as it is now, or was `at` a place as rollback takes it, and the
        cells that led there; the original goes on. Both work in the same folder."""
        book = await ctx.notebook(notebook, Access.OWN)
        branch = await ctx.app.branches.create(book, name, at)
        if use:
            ctx.app.current.set(ctx.client, branch)
        info: NotebookInfo = await ctx.info(branch)
        info["branch_of"] = book.title
        said = f"Made notebook {name!r} from {book.title!r} with {count(branch.cells, 'cell')}"
        said += now_current(ctx.client) if use else "."
        if missing := ctx.app.checkpoints.protection(branch).why:
            said += f" It does not have: {missing}."
        return ToolResult(content=said, structured_content=dict(info))

    registry.add(list_checkpoints, "List checkpoints", CheckpointList, read_only=True)
    registry.add(rollback, "Roll back", RolledBack, destructive=True, idempotent=True)
    registry.add(branch_notebook, "Branch notebook", NotebookInfo)


def _info(found: Checkpoint) -> CheckpointInfo:
    return {
        "checkpoint": found.run or "start",
        "cell_number": found.cell.number if found.cell is not None else None,
        "execution_count": found.count,
        "kind": found.kind,
        "bytes": found.size,
        "quality": found.census.quality,
        "loses": list(found.census.lost),
        "names": list(found.names),
        "current": found.current,
        "stale": found.stale,
    }


def _row(info: CheckpointInfo) -> str:
    where = f"after cell {info['cell_number']}" if info["cell_number"] is not None else "after a deleted cell"
    if info["checkpoint"] == "start":
        where = "before any cell"
    parts = [
        f"{'*' if info['current'] else ' '} {info['checkpoint']}: {where} (run {info['execution_count']})",
        f"{info['kind']}, {render.size(info['bytes'])}, {info['quality']}",
        *(f"named {name}" for name in info["names"]),
    ]
    if info["loses"]:
        parts.append(f"would lose {', '.join(info['loses'])}")
    if info["stale"]:
        parts.append("on a line rolled back since")
    return ", ".join(parts)
