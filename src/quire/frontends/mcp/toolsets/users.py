"""The `users` tool set: notebooks shared with others."""

from typing import Literal

from fastmcp.tools import ToolResult

from quire.core.notebooks.access import Access
from quire.frontends.mcp.results import Shared
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry


def register(registry: ToolRegistry) -> None:
    async def share_notebook(
        ctx: ToolContext, notebook: str, with_whom: str, access: Literal["read", "write", "none"] = "read"
    ) -> ToolResult:
        """Let another user look at a notebook of yours and export it (read), or run and edit its cells too (write):
        their code then acts as yours, on its files and your capabilities. none ends it. They call it owner/name."""
        book = await ctx.notebook(notebook, Access.OWN)
        given = None if access == "none" else Access(access)
        shares = await ctx.app.sharing.share(book, with_whom, given)
        shared: Shared = {
            "notebook": book.title,
            "called": f"{book.owner}/{book.name}",
            "shared_with": {str(whom): str(has) for whom, has in shares.items()},
        }
        said = ", ".join(f"{whom} ({has})" for whom, has in shares.items()) or "no one"
        text = f"Notebook {book.title!r}, to others {shared['called']}, is shared with {said}."
        return ToolResult(content=text, structured_content=dict(shared))

    registry.add(share_notebook, "Share notebook", Shared, idempotent=True)
