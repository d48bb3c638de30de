"""`execute_code` in the tool set `jupyter`: code without a cell, in a hidden notebook of the kernel that it runs in."""

from fastmcp.tools import ToolResult

from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import DocumentLocation, Notebook
from quire.core.notebooks.current import Client
from quire.core.ports.jupyter import RUNTIME
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry
from quire.frontends.mcp.toolsets.jupyter_cells import OTHER_NAMES, Books, From0, run


def register(registry: ToolRegistry, books: Books) -> None:
    async def execute_code(
        ctx: ToolContext,
        code: str,
        timeout: From0 = 30,
        kernel_id: str | None = None,
        progress_interval: int = 5,
        server: str | None = None,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Run code in a notebook's kernel, or in the one named, without a cell: for a look beside."""
        book, notice = await hidden_notebook(ctx, books, notebook_name, kernel_id, server or "")
        return await run(ctx, book, code, timeout, stream=False, notice=notice)

    registry.add(execute_code, "Execute code", None, open_world=True, other_names=OTHER_NAMES)


async def hidden_notebook(
    ctx: ToolContext, books: Books, name: str | None = None, kernel: str | None = None, server: str = ""
) -> tuple[Notebook, str]:
    """A notebook of that kernel alone, or of the kernel of the notebook with this name, and what to say of the kernel.
    Its cells are not kept."""
    client, notice = ctx.client, ""
    if kernel is not None and name is not None:
        raise InvalidRequest("Pass either kernel_id or notebook_name. Nothing was run.")
    own: Notebook | None = None
    if kernel is None:
        own = await books.named(ctx, name)
        if own.document is None:
            return own, ""
        kernel, server = await ctx.app.jupyter.kernel_of(own), own.document.server
    ctx.app.caller_policy.check_jupyter(client)
    found = await find_hidden(ctx, client, kernel)
    if not await ctx.app.jupyter.has_kernel(server, kernel):
        if found is not None:
            await _forget(ctx, found)
        if own is None:
            raise NotFound(_not_there(kernel))
        found, line = None, ctx.app.kernels.slots.lineage(own)
        if line is not None:  # another client shut it down; its connection may not know yet
            await ctx.app.kernels.slots.close_if_idle(own, line.head, "it was shut down on the Jupyter server")
    if own is not None and ctx.app.kernels.slots.live_kernel(own) is None:
        async with ctx.app.kernels.lease(own) as lease:  # starts it
            notice = lease.notice
        kernel = await ctx.app.jupyter.kernel_of(own)
        found = await find_hidden(ctx, client, kernel)
    place = DocumentLocation(server=server, kernel=kernel)
    found = found or await ctx.app.notebooks.create(client.principal, _name(kernel), RUNTIME, document=place)
    return found, notice


def _not_there(kernel: str) -> str:
    return (
        f"[ERROR: Kernel '{kernel}' not found in jupyter server, please check whether the kernel already exists using "
        "'list_kernels' tool. Without kernel_id the code runs in the notebook's own kernel.]"
    )


async def _forget(ctx: ToolContext, hidden: Notebook) -> None:
    await ctx.app.kernels.slots.forget(hidden)
    await ctx.app.notebooks.delete(hidden)


async def find_hidden(ctx: ToolContext, client: Client, kernel: str) -> Notebook | None:
    """The notebook that the client's code without cells ran in, if any did in this kernel."""
    found = await ctx.app.notebooks.find(client.principal, _name(kernel))
    hidden = found is not None and found.document is not None and not found.document.path
    return found if hidden else None


def _name(kernel: str) -> str:
    return f"kernel-{kernel[:36]}"
