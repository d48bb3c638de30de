"""Names that jupyter-mcp-server had before: answered as ever, and in no list but for two."""

from fastmcp import Context
from fastmcp.tools import ToolResult

from quire.core.notebooks.access import Access
from quire.frontends.mcp.desk import Desk
from quire.frontends.mcp.toolsets import Shelf, jupyter_texts
from quire.frontends.mcp.toolsets.jupyter_cells import Books, run, said
from quire.frontends.mcp.toolsets.jupyter_code import hidden_notebook


def register(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def list_cells(ctx: Context, notebook_name: str | None = None) -> ToolResult:
        """All cells, a line each: index, type, count, first line."""
        book = await books.named(ctx, notebook_name, Access.READ)
        return said(jupyter_texts.brief(await desk.app.notebooks.cells(book)))

    async def read_cells(ctx: Context, notebook_name: str | None = None) -> ToolResult:
        """All cells with their sources."""
        book = await books.named(ctx, notebook_name, Access.READ)
        cells = await desk.app.notebooks.cells(book)
        books.shown(ctx, book, *cells)
        most = max(500, 2 * desk.result_chars // max(1, len(cells)))
        return said(jupyter_texts.detailed(cells, most) or "Notebook is empty")

    async def execute_cell_simple_timeout(
        ctx: Context, cell_index: int, timeout_seconds: float = 300, notebook_name: str | None = None
    ) -> ToolResult:
        """Run a cell."""
        book = await books.named(ctx, notebook_name)
        return await run(desk, ctx, book, await books.cell(book, cell_index, None), timeout_seconds, stream=False)

    async def execute_cell_streaming(
        ctx: Context,
        cell_index: int,
        timeout_seconds: float = 300,
        progress_interval: int = 5,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Run a cell."""
        book = await books.named(ctx, notebook_name)
        return await run(desk, ctx, book, await books.cell(book, cell_index, None), timeout_seconds, stream=True)

    async def execute_cell_with_progress(
        ctx: Context, cell_index: int, timeout_seconds: float = 300, notebook_name: str | None = None
    ) -> ToolResult:
        """Run a cell."""
        book = await books.named(ctx, notebook_name)
        return await run(desk, ctx, book, await books.cell(book, cell_index, None), timeout_seconds, stream=False)

    async def execute_ipython(
        ctx: Context, code: str, timeout: float = 60, notebook_name: str | None = None
    ) -> ToolResult:
        """Run code without a cell."""
        book, notice = await hidden_notebook(desk, ctx, books, notebook_name)
        return await run(desk, ctx, book, code, timeout, stream=False, notice=notice)

    shelf.put(list_cells, "List cells", None, reads=True)
    shelf.put(read_cells, "Read cells", None, reads=True)
    for tool in (execute_cell_simple_timeout, execute_cell_streaming, execute_cell_with_progress, execute_ipython):
        shelf.put(tool, "Execute cell", None, runs=True, hidden=True)
