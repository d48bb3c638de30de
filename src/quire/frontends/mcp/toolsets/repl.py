"""The `repl` tool set: run code, see what there is, stop, start clean."""

from fastmcp import Context
from fastmcp.tools import ToolResult

from quire.frontends.mcp import render
from quire.frontends.mcp.desk import Desk, kernel_state, protection
from quire.frontends.mcp.results import CellInfo, Done, ExecutionResult, StateInfo
from quire.frontends.mcp.toolsets import Shelf


def register(shelf: Shelf, desk: Desk) -> None:
    async def execute(ctx: Context, code: str, timeout: float | None = None, notebook: str | None = None) -> ToolResult:
        """Run Python in a namespace that stays; the last expression's value comes back. Adds a cell.
        Plots show by themselves; top-level await works. timeout is in seconds."""
        book = await desk.notebook(ctx, notebook)
        cell, notice = await desk.run(ctx, book, code, timeout=timeout)
        return await desk.render.execution(book, cell, notice)

    async def state(ctx: Context, notebook: str | None = None) -> ToolResult:
        """What the namespace holds now: variables with type and size, functions, and how the kernel is."""
        book = await desk.notebook(ctx, notebook)
        found = await desk.app.runs.inspect(book)
        info: StateInfo = {
            "notebook": book.name,
            "kernel": kernel_state(desk.app, book),
            "defined_functions": [
                {"name": each["name"], "signature": each["signature"], "docstring": each["docstring"]}
                for each in (found.functions if found else [])
            ],
            "variables": found.variables if found else {},
            "capabilities": [],
            "history_length": book.runs,
            "runtime": book.runtime,
            "sandbox": desk.app.about["sandbox"],
            "protection": protection(desk.app, book),
        }
        return ToolResult(content=_state_text(info), structured_content=dict(info))

    async def reset(ctx: Context, notebook: str | None = None) -> ToolResult:
        """Start over with an empty namespace; the cells stay."""
        book = await desk.notebook(ctx, notebook)
        await desk.app.kernels.end(book)
        done: Done = {
            "notebook": book.name,
            "message": f"Notebook {book.name!r} has an empty namespace; its cells are kept.",
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
    shelf.put(reset, "Reset namespace", Done, destroys=True, repeats=True)
    shelf.put(interrupt, "Interrupt", CellInfo)


def _state_text(info: StateInfo) -> str:
    lines = [f"notebook {info['notebook']}: kernel {info['kernel']}, {info['history_length']} runs"]
    if info["kernel"] != "not started":
        lines.append(f"checkpoints: {info['protection']}")
    if info["kernel"] == "running":
        lines.append("A cell runs now; variables can be listed when it is done.")
    lines += [f"{name}: {kind}" for name, kind in info["variables"].items()]
    lines += [
        f"def {each['name']}{each['signature']}  {each['docstring']}".rstrip() for each in info["defined_functions"]
    ]
    if not info["variables"] and not info["defined_functions"]:
        lines.append("no variables, no functions")
    return "\n".join(lines)
