"""The `timeline` tool set: step back to an earlier state, or try a second way from it."""

from fastmcp import Context
from fastmcp.tools import ToolResult

from quire.core.checkpoints.checkpoint_list import Checkpoint
from quire.core.notebooks.access import Access
from quire.core.phrases import count
from quire.frontends.mcp import render
from quire.frontends.mcp.desk import Desk, kernel_state, now_current, on_disk, protection
from quire.frontends.mcp.results import CheckpointInfo, CheckpointList, NotebookInfo, RolledBack
from quire.frontends.mcp.toolsets import Shelf


def register(shelf: Shelf, desk: Desk) -> None:
    async def list_checkpoints(ctx: Context, notebook: str | None = None) -> ToolResult:
        """The earlier states rollback and branch_notebook can go to, and what each would lose."""
        book = await desk.notebook(ctx, notebook, Access.READ)
        found = [_info(each) for each in await desk.app.checkpoints.list_checkpoints(book)]
        asleep = (await kernel_state(desk.app, book))[1]
        listed: CheckpointList = {
            "notebook": book.title,
            "protection": protection(desk.app, book) if asleep is None else on_disk(asleep),
            "checkpoints": found,
        }
        text = "\n".join([*map(_row, found), f"protection: {listed['protection']}"])
        return ToolResult(content=text, structured_content=dict(listed))

    async def rollback(ctx: Context, to: int | str, notebook: str | None = None) -> ToolResult:
        """Put the namespace back to how it was after a cell (number or id), "before" a cell ("before 3"), at a
        checkpoint, or at "start". Later cells stay, marked stale. Files and connections are not rolled back."""
        book = await desk.notebook(ctx, notebook)
        moved = await desk.app.timeline.rollback(book, to)
        done: RolledBack = {
            "notebook": book.title,
            "checkpoint": moved.run or "start",
            "stale_cells": list(moved.stale),
            "not_restored": list(moved.lost),
        }
        return ToolResult(content=render.moved(moved), structured_content=dict(done))

    async def branch_notebook(
        ctx: Context, name: str, at: int | str | None = None, use: bool = True, notebook: str | None = None
    ) -> ToolResult:
        """A new notebook that begins with the namespace as it is now, or was `at` a place as rollback takes it, and the
        cells that led there; the original goes on. Both work in the same folder."""
        book = await desk.notebook(ctx, notebook, Access.OWN)
        branch = await desk.app.branches.create(book, name, at)
        if use:
            desk.app.current.use(desk.client(ctx), branch)
        info: NotebookInfo = await desk.info(ctx, branch)
        info["branch_of"] = book.title
        said = f"Made notebook {name!r} from {book.title!r} with {count(branch.cells, 'cell')}"
        said += now_current(desk.client(ctx)) if use else "."
        if missing := desk.app.checkpoints.protection(branch).why:
            said += f" It does not have: {missing}."
        return ToolResult(content=said, structured_content=dict(info))

    shelf.put(list_checkpoints, "List checkpoints", CheckpointList, reads=True)
    shelf.put(rollback, "Roll back", RolledBack, destroys=True, repeats=True)
    shelf.put(branch_notebook, "Branch notebook", NotebookInfo)


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
