"""`execute_code` in the tool set `jupyter`: code without a cell, in a hidden notebook of the kernel that it runs in."""

from fastmcp import Context
from fastmcp.tools import ToolResult

from quire.core.current import Client
from quire.core.errors import NotFound, Refused
from quire.core.jupyter import RUNTIME
from quire.core.model import Notebook, Place
from quire.frontends.mcp.desk import Desk
from quire.frontends.mcp.toolsets import Shelf
from quire.frontends.mcp.toolsets.jupyter_cells import OTHER_NAMES, Books, From0, run


def register(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def execute_code(
        ctx: Context,
        code: str,
        timeout: From0 = 30,
        kernel_id: str | None = None,
        progress_interval: int = 5,
        server: str | None = None,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Run code in a notebook's kernel, or in the one named, without a cell: for a look beside."""
        book = await hidden_notebook(desk, ctx, books, notebook_name, kernel_id, server or "")
        return await run(desk, ctx, book, code, timeout, stream=False)

    shelf.put(execute_code, "Execute code", None, runs=True, other_names=OTHER_NAMES)


async def hidden_notebook(
    desk: Desk, ctx: Context, books: Books, name: str | None = None, kernel: str | None = None, server: str = ""
) -> Notebook:
    """A notebook of that kernel alone, or of the kernel of the notebook with this name. Its cells are not kept."""
    client = desk.client(ctx)
    if kernel is not None and name is not None:
        raise Refused("Pass either kernel_id or notebook_name. Nothing was run.")
    if kernel is None:
        book = await books.named(ctx, name)
        if book.document is None:
            return book
        if desk.app.kernels.live(book) is None:
            async with desk.app.kernels.lease(book):  # starts it
                pass
        kernel, server = await desk.app.jupyter.kernel_of(book), book.document.server
    desk.app.confines.check_jupyter(client)
    found = await find_hidden(desk, client, kernel)
    if found is not None and desk.app.kernels.live(found) is not None:
        return found
    if kernel not in {each.id for each in await desk.app.jupyter.kernels(server)}:
        raise NotFound(
            f"[ERROR: Kernel '{kernel}' not found in jupyter server, please check whether the kernel already exists "
            "using 'list_kernels' tool.]"
        )
    place = Place(server=server, kernel=kernel)
    return found or await desk.app.notebooks.create(client.principal, _name(kernel), RUNTIME, document=place)


async def find_hidden(desk: Desk, client: Client, kernel: str) -> Notebook | None:
    """The notebook that the client's code without cells ran in, if any did in this kernel."""
    found = await desk.app.notebooks.find(client.principal, _name(kernel))
    hidden = found is not None and found.document is not None and not found.document.path
    return found if hidden else None


def _name(kernel: str) -> str:
    return f"kernel-{kernel[:36]}"
