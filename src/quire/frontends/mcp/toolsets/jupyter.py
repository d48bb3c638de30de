"""The `jupyter` tool set: what users of jupyter-mcp-server know, on the notebooks of all tool sets."""

from collections import OrderedDict
from typing import Annotated, Literal

from fastmcp.tools import ToolResult
from pydantic import Field

from quire.core.errors import InvalidRequest, NotFound, QuireError
from quire.core.model import Notebook
from quire.core.notebooks.current import Client
from quire.core.ports.jupyter import RUNTIME, JupyterFile
from quire.frontends.mcp.tool_context import ToolContext, kernel_state
from quire.frontends.mcp.tool_registry import ToolRegistry
from quire.frontends.mcp.toolsets import (
    jupyter_cells,
    jupyter_cite,
    jupyter_code,
    jupyter_older,
    jupyter_texts,
)
from quire.frontends.mcp.toolsets.jupyter_cells import Books, From0, said

_CLIENTS = 10_000  # whose server is remembered
_FIRST = 20  # cells of a notebook that is taken up


class _Servers:
    """Which server a client means that names none: the one it connected to last, else the first. Where clients cannot
    be told apart nothing is kept of them: each names the server it means where there are several."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[Client, str] = OrderedDict()

    def choose(self, client: Client, name: str) -> None:
        if client.is_shared:
            return
        self._chosen[client] = name
        self._chosen.move_to_end(client)
        while len(self._chosen) > _CLIENTS:
            self._chosen.popitem(last=False)

    def of(self, ctx: ToolContext, named: str | None) -> str:
        names = [server.name for server in ctx.app.jupyter.servers()] if ctx.client.is_shared else []
        if named is None and len(names) > 1:
            raise InvalidRequest(
                f"Which server? There are {', '.join(map(repr, names))}. Nothing was done. Pass `server` in each call: "
                "over HTTP, protocol 2026-07-28 has no current server."
            )
        return named or self._chosen.get(ctx.client, "")


def register(registry: ToolRegistry) -> None:
    servers, books = _Servers(), Books()
    _files(registry, servers)
    _notebooks(registry, servers, books)
    _in_use(registry, books)
    jupyter_cells.register(registry, books)
    jupyter_code.register(registry, books)
    _connecting(registry, servers)
    jupyter_older.register(registry, books)
    jupyter_cite.register(registry, books)


def _files(registry: ToolRegistry, servers: _Servers) -> None:
    async def list_files(
        ctx: ToolContext,
        path: str = "",
        max_depth: Annotated[int, Field(ge=0, le=3)] = 1,
        start_index: From0 = 0,
        limit: From0 = 25,
        pattern: str = "",
        server: str | None = None,
    ) -> ToolResult:
        """Files below a folder of the Jupyter server; pattern is a glob over their paths, limit=0 shows all."""
        ctx.app.caller_policy.check_jupyter(ctx.client)
        found = await _below(ctx, servers.of(ctx, server), path.strip("/"), max_depth)
        return said(jupyter_texts.files(found, path.strip("/"), pattern, start_index, limit))

    async def list_kernels(ctx: ToolContext, server: str | None = None) -> ToolResult:
        """Kernels that run on the Jupyter server."""
        ctx.app.caller_policy.check_jupyter(ctx.client)
        return said(jupyter_texts.kernels(await ctx.app.jupyter.kernels(servers.of(ctx, server))))

    registry.add(list_files, "List files", None, read_only=True)
    registry.add(list_kernels, "List kernels", None, read_only=True)


async def _below(ctx: ToolContext, server: str, path: str, depth: int) -> list[JupyterFile]:
    found: list[JupyterFile] = []
    for each in await ctx.app.jupyter.files(server, path):
        found.append(each)
        if each.kind == "directory" and depth > 0:
            try:
                found += await _below(ctx, server, each.path, depth - 1)
            except QuireError as error:  # an unreadable folder is left out
                found.append(JupyterFile(path=each.path, kind="error", size=None, modified=f"Error: {error}"))
    return found


def _notebooks(registry: ToolRegistry, servers: _Servers, books: Books) -> None:
    async def use_notebook(
        ctx: ToolContext,
        notebook_name: str,
        notebook_path: str | None = None,
        mode: Literal["connect", "create"] = "connect",
        kernel_id: str | None = None,
        server: str | None = None,
    ) -> ToolResult:
        """Take up a notebook of the Jupyter server under a name and make it current. It runs in the kernel its page
        uses, else in a new one; kernel_id names another, "NEW" or a kernelspec starts one."""
        client = ctx.client
        ctx.app.caller_policy.check_jupyter(client)
        with ctx.app.current.choosing(client, notebook_name):
            there = await ctx.app.notebooks.find(client.principal, notebook_name)
            if there is not None:
                return await _again(ctx, client, there, notebook_path, mode)
            if notebook_path is None and mode == "create":
                raise InvalidRequest("Where is it to be made? Pass notebook_path, as in 'analysis.ipynb'.")
            if notebook_path is None:
                raise NotFound(await books.not_there(ctx, notebook_name))
            where = servers.of(ctx, server)
            return await _take_up(ctx, client, notebook_name, where, notebook_path, mode, kernel_id)

    registry.add(use_notebook, "Use notebook", None, idempotent=True)


async def _take_up(
    ctx: ToolContext, client: Client, name: str, server: str, path: str, mode: str, kernel_id: str | None
) -> ToolResult:
    info: list[str] = []
    spec = await ctx.app.jupyter.check_kernel(server, kernel_id) if kernel_id else ""  # before anything is made
    place = await ctx.app.jupyter.place(server, path, spec=spec if mode == "create" else "", create=mode == "create")
    if kernel_id:
        place = await ctx.app.jupyter.adopt(place, kernel_id)
        info.append(f"[INFO] Connected to kernel '{place.kernel}'.")
    book = await ctx.app.notebooks.create(client.principal, name, RUNTIME, document=place)
    info += [] if kernel_id else [await _kernel(ctx, book)]
    if not ctx.app.jupyter.live(place):
        info.append("[INFO] No jupyter-collaboration there: edits go to the file, not into open pages.")
    ctx.app.current.set(client, book)
    info += [f"[INFO] Successfully activate notebook '{name}'.", *_no_current(client)]
    return said("\n".join((*info, await _overview(ctx, book))))


def _no_current(client: Client) -> list[str]:
    note = "[INFO] Pass notebook_name in each call: over HTTP, protocol 2026-07-28 has no current notebook."
    return [note] if client.is_shared else []


def _in_use(registry: ToolRegistry, books: Books) -> None:
    async def list_notebooks(ctx: ToolContext) -> ToolResult:
        """Notebooks in use, with their kernels."""
        client = ctx.client
        current, rows = ctx.app.current.peek_name(client), []
        for book, _ in await ctx.app.sharing.list_accessible(client):
            kernel, path = (await kernel_state(ctx.app, book))[0], book.document.path if book.document else "-"
            rows.append((book.title, path, await _id(ctx, book), kernel, "✓" if book.title == current else ""))
        if not rows:
            return said("No managed notebooks. Use the use_notebook tool to manage notebooks first.")
        return said(jupyter_texts.table(("Name", "Path", "Kernel_ID", "Kernel_Status", "Activate"), sorted(rows)))

    async def restart_notebook(ctx: ToolContext, notebook_name: str) -> ToolResult:
        """Restart a notebook's kernel, whatever runs in it; its variables are gone."""
        book = await books.named(ctx, notebook_name)
        was_running = True
        if book.document is None:
            await ctx.app.kernels.reset(book)
        else:
            was_running = await ctx.app.jupyter.restart(book)
        cleared = "Memory state and imported packages have been cleared."
        none = "No kernel was running: the next run starts one."
        return said(f"Notebook '{notebook_name}' kernel restarted successfully. {cleared if was_running else none}")

    async def unuse_notebook(ctx: ToolContext, notebook_name: str) -> ToolResult:
        """Let go of a notebook: it is saved and stays on the Jupyter server. A kernel started for it ends."""
        client, book = ctx.client, await books.named(ctx, notebook_name)
        was_current = not client.is_shared and ctx.app.current.chosen_name(client) == book.title
        unsaved = await _let_go(ctx, client, book) if book.document is not None else ""
        now = ctx.app.current.unset(client, book.title)
        text = " ".join(filter(None, (f"Notebook '{notebook_name}' unused successfully.", unsaved)))
        if was_current:
            text += f" Current notebook switched to '{now}'." if now else " No notebook is current now."
        return said(text)

    async def list_notebook(ctx: ToolContext) -> ToolResult:
        """An older name of list_notebooks."""
        return await list_notebooks(ctx)

    registry.add(list_notebooks, "List notebooks", None, read_only=True)
    registry.add(list_notebook, "List notebooks", None, read_only=True, hidden=True)
    registry.add(restart_notebook, "Restart notebook", None, destructive=True)
    registry.add(unuse_notebook, "Unuse notebook", None, destructive=True, idempotent=True)


async def _let_go(ctx: ToolContext, client: Client, book: Notebook) -> str:
    """Save and forget it and the hidden notebook of its kernel, and end a kernel started for it; what is not saved."""
    hidden = await jupyter_code.find_hidden(ctx, client, await _id(ctx, book))
    for one, code in ((book, "A cell"), (hidden, "Code of execute_code")):
        if one is not None and ctx.app.runs.current(one) is not None:
            then = "Let it end, or call restart_notebook first."
            raise InvalidRequest(f"{code} runs in the kernel of notebook '{book.name}'. {then}")
    unsaved = await ctx.app.jupyter.save(book)
    for one in filter(None, (hidden, book)):
        await ctx.app.kernels.slots.forget(one)
        await ctx.app.notebooks.delete(one)
    await ctx.app.jupyter.end_kernel(book)
    return unsaved


async def _again(ctx: ToolContext, client: Client, book: Notebook, path: str | None, mode: str) -> ToolResult:
    """Of a name that is in use."""
    name, own = book.name, book.document.path if book.document is not None else None
    same = path is None or own is None or path.strip("/") == own
    if mode == "create":
        if same:
            raise InvalidRequest(f"Notebook '{name}'(path: {own}) is already created. DO NOT CREATE AGAIN.")
        other = f"Use different notebook_name to create a new notebook on {path}."
        raise InvalidRequest(f"Notebook '{name}' is already used. {other}")
    if not same:
        wrong = f"The path '{path}' is not the correct path for notebook '{name}'."
        raise InvalidRequest(f"{wrong} Do you mean connect to '{own}'?")
    before = None if client.is_shared else ctx.app.current.chosen_name(client)
    ctx.app.current.set(client, book)
    note = f" and deactivating '{before}'" if before and before != book.title else ""
    kernel = await _kernel(ctx, book) if book.document is not None else ""
    first = f"[INFO] Reactivating notebook '{name}'{note}."
    return said("\n".join(filter(None, (first, *_no_current(client), kernel, await _overview(ctx, book)))))


async def _kernel(ctx: ToolContext, book: Notebook) -> str:
    kernel = await _id(ctx, book)
    if kernel == "-":
        return "[INFO] No kernel runs for it yet; the first execution starts one."
    return f"[INFO] It runs in kernel '{kernel}'."


async def _id(ctx: ToolContext, book: Notebook) -> str:
    if book.document is None:
        return "-"
    try:
        return await ctx.app.jupyter.kernel_of(book) or "-"
    except QuireError:  # a server that is not there costs that column
        return "unknown"


async def _overview(ctx: ToolContext, book: Notebook) -> str:
    cells = await ctx.app.cells.list_cells(book)
    shown = cells[:_FIRST]
    lines = [f"\nNotebook has {jupyter_texts.number_of(len(cells), 'cell')}."]
    if len(shown) > 1:
        lines.append(f"Showing first {len(shown)} cells:")
    return "\n".join((*lines, "", jupyter_texts.brief(shown)))


def _connecting(registry: ToolRegistry, servers: _Servers) -> None:
    async def connect_to_jupyter(
        ctx: ToolContext,
        jupyter_url: str,
        jupyter_token: str | None = None,
        document_provider: Literal["jupyter"] = "jupyter",
        server: str | None = None,
        kernel_url: str | None = None,
        kernel_token: str | None = None,
    ) -> ToolResult:
        """Connect to a Jupyter server, named by `server` where there are several; kernel_url is another one to run
        code on. A token may be a reference: env:NAME, file:/path."""
        client = ctx.client
        ctx.app.caller_policy.check_jupyter(client)
        found = await ctx.app.jupyter.connect(
            jupyter_url,
            jupyter_token or "",
            name=server or "",
            kernel_url=kernel_url or "",
            kernel_token=kernel_token or "",
        )
        servers.choose(client, found.name)
        by = "Token-based" if jupyter_token or "token=" in jupyter_url else "None (anonymous)"
        lines = (
            f"Successfully connected to Jupyter server: {found.url}",
            f"DocumentProvider: {document_provider}",
            f"Authentication: {by}",
            f"Server: {found.name}",
            f"Pass server={found.name!r} in calls that mean it."
            if client.is_shared
            else "It is the one that calls without `server` mean from now on.",
        )
        return said("\n".join(lines))

    registry.add(connect_to_jupyter, "Connect to Jupyter", None, idempotent=True)
