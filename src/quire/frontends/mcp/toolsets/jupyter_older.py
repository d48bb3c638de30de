"""Names that jupyter-mcp-server had before: answered as ever, and in no list but for two."""

from fastmcp.tools import ToolResult

from quire.core.notebooks.access import Access
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry
from quire.frontends.mcp.toolsets import jupyter_texts
from quire.frontends.mcp.toolsets.jupyter_cells import Books, run, said
from quire.frontends.mcp.toolsets.jupyter_code import hidden_notebook


def register(registry: ToolRegistry, books: Books) -> None:
    async def list_cells(ctx: ToolContext, notebook_name: str | None = None) -> ToolResult:
        """All cells, a line each: index, type, count, first line."""
        book = await books.named(ctx, notebook_name, Access.READ)
        return said(jupyter_texts.brief(await ctx.app.cells.list_cells(book)))

    async def read_cells(ctx: ToolContext, notebook_name: str | None = None) -> ToolResult:
        """All cells with their sources."""
        book = await books.named(ctx, notebook_name, Access.READ)
        cells = await ctx.app.cells.list_cells(book)
        books.shown(ctx, book, *cells)
        most = max(500, 2 * ctx.result_chars // max(1, len(cells)))
        return said(jupyter_texts.detailed(cells, most) or "Notebook is empty")

    async def execute_cell_simple_timeout(
        ctx: ToolContext, cell_index: int, timeout_seconds: float = 300, notebook_name: str | None = None
    ) -> ToolResult:
        """Run a cell."""
        book = await books.named(ctx, notebook_name)
        return await run(ctx, book, await books.cell(ctx, book, cell_index, None), timeout_seconds, stream=False)

    async def execute_cell_streaming(
        ctx: ToolContext,
        cell_index: int,
        timeout_seconds: float = 300,
        progress_interval: int = 5,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Run a cell."""
        book = await books.named(ctx, notebook_name)
        return await run(ctx, book, await books.cell(ctx, book, cell_index, None), timeout_seconds, stream=True)

    async def execute_cell_with_progress(
        ctx: ToolContext, cell_index: int, timeout_seconds: float = 300, notebook_name: str | None = None
    ) -> ToolResult:
        """Run a cell."""
        book = await books.named(ctx, notebook_name)
        return await run(ctx, book, await books.cell(ctx, book, cell_index, None), timeout_seconds, stream=False)

    async def execute_ipython(
        ctx: ToolContext, code: str, timeout: float = 60, notebook_name: str | None = None
    ) -> ToolResult:
        """Run code without a cell."""
        book, notice = await hidden_notebook(ctx, books, notebook_name)
        return await run(ctx, book, code, timeout, stream=False, notice=notice)

    registry.add(list_cells, "List cells", None, read_only=True)
    registry.add(read_cells, "Read cells", None, read_only=True)
    for tool in (execute_cell_simple_timeout, execute_cell_streaming, execute_cell_with_progress, execute_ipython):
        registry.add(tool, "Execute cell", None, open_world=True, hidden=True)
