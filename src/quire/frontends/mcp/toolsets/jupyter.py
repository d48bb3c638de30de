"""The `jupyter` tool set: what users of jupyter-mcp-server know, on the notebooks of all tool sets."""

from collections import OrderedDict
from typing import Annotated, Literal

from fastmcp import Context
from fastmcp.tools import ToolResult
from pydantic import Field

from quire.core.errors import InvalidRequest, NotFound, QuireError
from quire.core.model import Notebook
from quire.core.notebooks.current import Client
from quire.core.ports.jupyter import RUNTIME, JupyterFile
from quire.frontends.mcp.desk import Desk, kernel_state
from quire.frontends.mcp.toolsets import (
    Shelf,
    jupyter_cells,
    jupyter_cite,
    jupyter_code,
    jupyter_older,
    jupyter_texts,
)
from quire.frontends.mcp.toolsets.jupyter_cells import Books

_CLIENTS = 10_000  # whose server is remembered
_FIRST = 20  # cells of a notebook that is taken up

From0 = Annotated[int, Field(ge=0)]


class _Servers:
    """Which server a client means that names none: the one it connected to last, else the first. Where clients cannot
    be told apart nothing is kept of them: each names the server it means where there are several."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._chosen: OrderedDict[Client, str] = OrderedDict()

    def choose(self, client: Client, name: str) -> None:
        if client.is_shared:
            return
        self._chosen[client] = name
        self._chosen.move_to_end(client)
        while len(self._chosen) > _CLIENTS:
            self._chosen.popitem(last=False)

    def of(self, client: Client, named: str | None) -> str:
        names = [server.name for server in self._desk.app.jupyter.servers()] if client.is_shared else []
        if named is None and len(names) > 1:
            raise InvalidRequest(
                f"Which server? There are {', '.join(map(repr, names))}. Nothing was done. Pass `server` in each call: "
                "over HTTP, protocol 2026-07-28 has no current server."
            )
        return named or self._chosen.get(client, "")


def register(shelf: Shelf, desk: Desk) -> None:
    servers, books = _Servers(desk), Books(desk)
    _files(shelf, desk, servers)
    _notebooks(shelf, desk, servers, books)
    _in_use(shelf, desk, books)
    jupyter_cells.register(shelf, desk, books)
    jupyter_code.register(shelf, desk, books)
    _connecting(shelf, desk, servers)
    jupyter_older.register(shelf, desk, books)
    jupyter_cite.register(shelf, desk, books)


def said(text: str) -> ToolResult:
    return ToolResult(content=text)


def _files(shelf: Shelf, desk: Desk, servers: _Servers) -> None:
    async def list_files(
        ctx: Context,
        path: str = "",
        max_depth: Annotated[int, Field(ge=0, le=3)] = 1,
        start_index: From0 = 0,
        limit: From0 = 25,
        pattern: str = "",
        server: str | None = None,
    ) -> ToolResult:
        """Files below a folder of the Jupyter server; pattern is a glob over their paths, limit=0 shows all."""
        client = desk.client(ctx)
        desk.app.confines.check_jupyter(client)
        found = await _below(desk, servers.of(client, server), path.strip("/"), max_depth)
        return said(jupyter_texts.files(found, path.strip("/"), pattern, start_index, limit))

    async def list_kernels(ctx: Context, server: str | None = None) -> ToolResult:
        """Kernels that run on the Jupyter server."""
        client = desk.client(ctx)
        desk.app.confines.check_jupyter(client)
        return said(jupyter_texts.kernels(await desk.app.jupyter.kernels(servers.of(client, server))))

    shelf.put(list_files, "List files", None, reads=True)
    shelf.put(list_kernels, "List kernels", None, reads=True)


async def _below(desk: Desk, server: str, path: str, depth: int) -> list[JupyterFile]:
    found: list[JupyterFile] = []
    for each in await desk.app.jupyter.files(server, path):
        found.append(each)
        if each.kind == "directory" and depth > 0:
            try:
                found += await _below(desk, server, each.path, depth - 1)
            except QuireError as error:  # a folder that nobody may read costs that folder
                found.append(JupyterFile(path=each.path, kind="error", size=None, modified=f"Error: {error}"))
    return found


def _notebooks(shelf: Shelf, desk: Desk, servers: _Servers, books: Books) -> None:
    async def use_notebook(
        ctx: Context,
        notebook_name: str,
        notebook_path: str | None = None,
        mode: Literal["connect", "create"] = "connect",
        kernel_id: str | None = None,
        server: str | None = None,
    ) -> ToolResult:
        """Take up a notebook of the Jupyter server under a name and make it current. It runs in the kernel its page
        uses, else in a new one; kernel_id names another, "NEW" or a kernelspec starts one."""
        client = desk.client(ctx)
        desk.app.confines.check_jupyter(client)
        with desk.app.current.choosing(client, notebook_name):
            there = await desk.app.notebooks.find(client.principal, notebook_name)
            if there is not None:
                return await _again(desk, client, there, notebook_path, mode)
            if notebook_path is None and mode == "create":
                raise InvalidRequest("Where is it to be made? Pass notebook_path, as in 'analysis.ipynb'.")
            if notebook_path is None:
                raise NotFound(await books.not_there(client, notebook_name))
            where = servers.of(client, server)
            return await _take_up(desk, client, notebook_name, where, notebook_path, mode, kernel_id)

    shelf.put(use_notebook, "Use notebook", None, repeats=True)


async def _take_up(
    desk: Desk, client: Client, name: str, server: str, path: str, mode: str, kernel_id: str | None
) -> ToolResult:
    info: list[str] = []
    spec = await desk.app.jupyter.check_kernel(server, kernel_id) if kernel_id else ""  # before anything is made
    place = await desk.app.jupyter.place(server, path, spec=spec if mode == "create" else "", create=mode == "create")
    if kernel_id:
        place = await desk.app.jupyter.adopt(place, kernel_id)
        info.append(f"[INFO] Connected to kernel '{place.kernel}'.")
    book = await desk.app.notebooks.create(client.principal, name, RUNTIME, document=place)
    info += [] if kernel_id else [await _kernel(desk, book)]
    if not desk.app.jupyter.live(place):
        info.append("[INFO] No jupyter-collaboration there: edits go to the file, not into open pages.")
    desk.app.current.use(client, book)
    info += [f"[INFO] Successfully activate notebook '{name}'.", *_no_current(client)]
    return said("\n".join((*info, await _overview(desk, book))))


def _no_current(client: Client) -> list[str]:
    note = "[INFO] Pass notebook_name in each call: over HTTP, protocol 2026-07-28 has no current notebook."
    return [note] if client.is_shared else []


def _in_use(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def list_notebooks(ctx: Context) -> ToolResult:
        """Notebooks in use, with their kernels."""
        client = desk.client(ctx)
        current, rows = desk.app.current.peek(client), []
        for book, _ in await desk.app.sharing.all(client):
            kernel, path = (await kernel_state(desk.app, book))[0], book.document.path if book.document else "-"
            rows.append((book.title, path, await _id(desk, book), kernel, "✓" if book.title == current else ""))
        if not rows:
            return said("No managed notebooks. Use the use_notebook tool to manage notebooks first.")
        return said(jupyter_texts.table(("Name", "Path", "Kernel_ID", "Kernel_Status", "Activate"), sorted(rows)))

    async def restart_notebook(ctx: Context, notebook_name: str) -> ToolResult:
        """Restart a notebook's kernel, whatever runs in it; its variables are gone."""
        book = await books.named(ctx, notebook_name)
        was_running = True
        if book.document is None:
            await desk.app.kernels.reset(book)
        else:
            was_running = await desk.app.jupyter.restart(book)
        cleared = "Memory state and imported packages have been cleared."
        none = "No kernel was running: the next run starts one."
        return said(f"Notebook '{notebook_name}' kernel restarted successfully. {cleared if was_running else none}")

    async def unuse_notebook(ctx: Context, notebook_name: str) -> ToolResult:
        """Let go of a notebook: it is saved and stays on the Jupyter server. A kernel started for it ends."""
        client, book = desk.client(ctx), await books.named(ctx, notebook_name)
        was_current = not client.is_shared and desk.app.current.chosen(client) == book.title
        unsaved = await _let_go(desk, client, book) if book.document is not None else ""
        now = desk.app.current.leave(client, book.title)
        text = " ".join(filter(None, (f"Notebook '{notebook_name}' unused successfully.", unsaved)))
        if was_current:
            text += f" Current notebook switched to '{now}'." if now else " No notebook is current now."
        return said(text)

    async def list_notebook(ctx: Context) -> ToolResult:
        """An older name of list_notebooks."""
        return await list_notebooks(ctx)

    shelf.put(list_notebooks, "List notebooks", None, reads=True)
    shelf.put(list_notebook, "List notebooks", None, reads=True, hidden=True)
    shelf.put(restart_notebook, "Restart notebook", None, destroys=True)
    shelf.put(unuse_notebook, "Unuse notebook", None, destroys=True, repeats=True)


async def _let_go(desk: Desk, client: Client, book: Notebook) -> str:
    """Save and forget it and the hidden notebook of its kernel, and end a kernel started for it; what is not saved."""
    hidden = await jupyter_code.find_hidden(desk, client, await _id(desk, book))
    for one, code in ((book, "A cell"), (hidden, "Code of execute_code")):
        if one is not None and desk.app.runs.current(one) is not None:
            then = "Let it end, or call restart_notebook first."
            raise InvalidRequest(f"{code} runs in the kernel of notebook '{book.name}'. {then}")
    unsaved = await desk.app.jupyter.save(book)
    for one in filter(None, (hidden, book)):
        await desk.app.kernels.slots.forget(one)
        await desk.app.notebooks.forget(one)
    await desk.app.jupyter.end_kernel(book)
    return unsaved


async def _again(desk: Desk, client: Client, book: Notebook, path: str | None, mode: str) -> ToolResult:
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
    before = None if client.is_shared else desk.app.current.chosen(client)
    desk.app.current.use(client, book)
    note = f" and deactivating '{before}'" if before and before != book.title else ""
    kernel = await _kernel(desk, book) if book.document is not None else ""
    first = f"[INFO] Reactivating notebook '{name}'{note}."
    return said("\n".join(filter(None, (first, *_no_current(client), kernel, await _overview(desk, book)))))


async def _kernel(desk: Desk, book: Notebook) -> str:
    kernel = await _id(desk, book)
    if kernel == "-":
        return "[INFO] No kernel runs for it yet; the first execution starts one."
    return f"[INFO] It runs in kernel '{kernel}'."


async def _id(desk: Desk, book: Notebook) -> str:
    if book.document is None:
        return "-"
    try:
        return await desk.app.jupyter.kernel_of(book) or "-"
    except QuireError:  # a server that is not there costs that column
        return "unknown"


async def _overview(desk: Desk, book: Notebook) -> str:
    cells = await desk.app.notebooks.cells(book)
    shown = cells[:_FIRST]
    lines = [f"\nNotebook has {jupyter_texts.number_of(len(cells), 'cell')}."]
    if len(shown) > 1:
        lines.append(f"Showing first {len(shown)} cells:")
    return "\n".join((*lines, "", jupyter_texts.brief(shown)))


def _connecting(shelf: Shelf, desk: Desk, servers: _Servers) -> None:
    async def connect_to_jupyter(
        ctx: Context,
        jupyter_url: str,
        jupyter_token: str | None = None,
        document_provider: Literal["jupyter"] = "jupyter",
        server: str | None = None,
        kernel_url: str | None = None,
        kernel_token: str | None = None,
    ) -> ToolResult:
        """Connect to a Jupyter server, named by `server` where there are several; kernel_url is another one to run
        code on. A token may be a reference: env:NAME, file:/path."""
        client = desk.client(ctx)
        desk.app.confines.check_jupyter(client)
        found = await desk.app.jupyter.connect(
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

    shelf.put(connect_to_jupyter, "Connect to Jupyter", None, repeats=True)
