"""Notebooks, cells, outputs, pictures and files as resources under notebook://."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import FastMCPError, ResourceError
from fastmcp.resources import ResourceContent, ResourceResult
from mcp_types import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from quire.core.errors import NotFound, QuireError
from quire.core.model import Notebook
from quire.core.notebooks.access import Access
from quire.core.notebooks.files import as_text
from quire.core.ports.files import FileSlice
from quire.frontends.mcp import fastmcp_internals, render
from quire.frontends.mcp.audit_middleware import AuditedRequest
from quire.frontends.mcp.callers import caller_of, client_of
from quire.frontends.mcp.client_request import ClientRequest
from quire.frontends.mcp.tool_context import ToolContext, ToolServices
from quire.frontends.mcp.tool_registry import without_context
from quire.frontends.mcp.toolsets.files import mime_of
from quire.frontends.mcp.toolsets.notebook import document

CURRENT = "current"
Book = Callable[..., Awaitable[Notebook]]
Offer = Callable[..., None]
_JSON = "application/json"
_ROWS = 100


def register(server: FastMCP[Any], services: ToolServices, *, files: bool) -> None:
    async def book(ctx: ToolContext, name: str = CURRENT) -> Notebook:
        return await ctx.notebook(None if name == CURRENT else name, Access.READ)

    def offer(uri: str, read: Callable[..., Awaitable[Any]], name: str, mime: str = _JSON) -> None:
        server.resource(uri, name=name, mime_type=mime)(in_context(services, read, ResourceError))

    if files:
        _files(book, offer)
    _notebooks(book, offer)
    _cells(book, offer)


def _files(book: Book, offer: Offer) -> None:
    async def file(ctx: ToolContext, path: str, name: str = CURRENT) -> ResourceResult:
        """A file of the workspace, whole: text as text, anything else binary."""
        found = await ctx.app.files.read_whole(await book(ctx, name), path)
        text = as_text(FileSlice(data=found, start=0, total=len(found)))
        mime = mime_of(path, text is not None)
        return ResourceResult([ResourceContent(text[0] if text else found, mime_type=mime)])

    offer("notebook://files/{path*}", file, "file", "application/octet-stream")
    offer("notebook://{name}/files/{path*}", file, "file of a notebook", "application/octet-stream")


def _notebooks(book: Book, offer: Offer) -> None:
    async def notebooks(ctx: ToolContext) -> str:
        """All notebooks."""
        found = await ctx.app.sharing.list_accessible(ctx.client)
        return json.dumps([await ctx.info(each) for each, _ in found])

    async def cells(ctx: ToolContext, name: str = CURRENT) -> str:
        """The cells of a notebook, without outputs."""
        notebook = await book(ctx, name)
        found = await ctx.app.cells.list_cells(notebook)
        return json.dumps([{**render.describe(notebook, cell), "code": cell.source} for cell in found])

    async def info(ctx: ToolContext, name: str = CURRENT) -> str:
        """A notebook: runtime, kernel, workspace, counts."""
        return json.dumps(await ctx.info(await book(ctx, name)))

    async def ipynb(ctx: ToolContext, name: str = CURRENT) -> str:
        """A notebook as Jupyter's ipynb."""
        return await document(ctx, await book(ctx, name))

    offer("notebook://notebooks", notebooks, "notebooks")
    for place, of in (("current", "current notebook"), ("{name}", "a notebook")):
        offer(f"notebook://{place}/cells", cells if place != "current" else _here(cells), f"cells of {of}")
        offer(f"notebook://{place}/info", info if place != "current" else _here(info), f"info of {of}")
        offer(f"notebook://{place}/ipynb", ipynb if place != "current" else _here(ipynb), f"ipynb of {of}")


def _cells(book: Book, offer: Offer) -> None:
    async def cell(ctx: ToolContext, which: str, name: str = CURRENT) -> str:
        """A cell with its source and outputs."""
        notebook = await book(ctx, name)
        found = await ctx.cell(notebook, which)
        shown = (await ctx.render.cell(notebook, found)).structured_content or {}
        return json.dumps({**shown, "code": found.source})

    async def image(ctx: ToolContext, which: str, index: int, name: str = CURRENT) -> ResourceResult:
        """A cell's picture, binary."""
        found = await ctx.app.outputs.read_image(await ctx.cell(await book(ctx, name), which), index)
        return ResourceResult([ResourceContent(found.data, mime_type=found.mime)])

    async def output(ctx: ToolContext, which: str, index: int, name: str = CURRENT) -> ResourceResult:
        """One output of a cell, whole: every form it has."""
        notebook = await book(ctx, name)
        found = await ctx.cell(notebook, which)
        if not 0 <= index < len(found.outputs):
            raise NotFound(f"Cell {found.number} has {len(found.outputs)} outputs; there is no output {index}.")
        whole = (await ctx.app.outputs.load(found)).outputs[index]
        return ResourceResult([ResourceContent(data, mime_type=mime) for mime, data in whole.bundle.items()])

    async def rows(ctx: ToolContext, which: str, index: int, start: int, name: str = CURRENT) -> str:
        """A hundred rows of a data frame that a cell showed, from `start` on, as CSV."""
        notebook = await book(ctx, name)
        found = await ctx.cell(notebook, which)
        table = found.outputs[index].about.get("table") if 0 <= index < len(found.outputs) else None
        if not isinstance(table, str):
            raise NotFound(f"Output {index} of cell {found.number} is no table.")
        start = max(0, start)
        paged = await ctx.app.inspector.read_rows(notebook, table, start, _ROWS)
        if start >= paged.total:
            return f"[no rows from {start:,} on: there are {paged.total:,}]"
        return f"{paged.text}\n[rows {start:,} to {min(start + _ROWS, paged.total) - 1:,} of {paged.total:,}]"

    for place, of in (("cell", ""), ("{name}/cell", " of a notebook")):
        offer(f"notebook://{place}/{{which}}", cell, f"cell{of}")
        offer(f"notebook://{place}/{{which}}/image/{{index}}", image, f"cell image{of}", "image/png")
        offer(f"notebook://{place}/{{which}}/output/{{index}}", output, f"cell output{of}", "text/plain")
        offer(f"notebook://{place}/{{which}}/output/{{index}}/rows/{{start}}", rows, f"table rows{of}", "text/csv")


def register_completions(server: FastMCP[Any], services: ToolServices) -> None:
    @server.completion
    async def complete(
        reference: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> list[str] | None:
        app, request = services.app, fastmcp_internals.current_request()
        caller = caller_of(request)
        books = [book for book, _ in await app.sharing.list_accessible(caller)]
        if argument.name in ("name", "notebook"):
            return [book.title for book in books if book.title.startswith(argument.value)]
        if argument.name in ("which", "cell"):
            given = (context.arguments or {}) if context else {}
            wanted = given.get("name") or given.get("notebook") or CURRENT
            if wanted == CURRENT:
                wanted = app.current.peek_name(client_of(request))
            cells = [
                cell
                for book in books
                if book.title == wanted
                for cell in await app.cells.list_cells(book, max(0, book.cells - 100))
            ]
            offered = [each for cell in reversed(cells) for each in (cell.id, str(cell.number))]
            return [each for each in offered if each.startswith(argument.value)]
        return None


def in_context(
    services: ToolServices, read: Callable[..., Awaitable[Any]], raises: type[FastMCPError] | None = None
) -> Callable[..., Awaitable[Any]]:
    """`read` as fastmcp calls it: without its first parameter, the ToolContext of the request being answered.

    `raises`: what fastmcp takes as an error for the client, in place of a QuireError.
    """

    async def called(**arguments: Any) -> Any:
        request = fastmcp_internals.current_request()
        assert isinstance(request, AuditedRequest)
        try:
            return await read(ToolContext(services, ClientRequest.of(request), request.record), **arguments)
        except QuireError as error:
            request.record.set_error(error)
            if raises is None:
                raise
            raise raises(str(error), log_level=logging.DEBUG) from error

    return without_context(read, called)


def _here(read: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """`read` for the current notebook: a fixed address takes no parameters."""

    async def here(ctx: ToolContext) -> str:
        return await read(ctx)

    here.__name__, here.__doc__ = f"current_{read.__name__}", read.__doc__
    return here
