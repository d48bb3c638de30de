"""The `notebook` tool set: notebooks of cells, kept on disk."""

from typing import Annotated, Any, Literal

import anyio
from fastmcp.tools import ToolResult
from mcp_types import ImageContent, TextContent
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from quire.core.errors import InvalidRequest
from quire.core.model import Cell, CellKind, DocumentLocation, Edit, Notebook, Policy
from quire.core.notebooks import safe_files
from quire.core.notebooks.access import Access
from quire.core.notebooks.current import Client
from quire.core.phrases import count
from quire.core.ports.jupyter import RUNTIME as JUPYTER
from quire.frontends.mcp import render
from quire.frontends.mcp.results import (
    CellInfo,
    CellList,
    Document,
    Done,
    NotebookInfo,
    NotebookList,
    ShownCell,
)
from quire.frontends.mcp.tool_context import ToolContext, now_current
from quire.frontends.mcp.tool_registry import ToolRegistry

Kind = Literal["code", "markdown", "raw"]


class Limits(TypedDict, total=False):
    """Zero is no limit."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    memory_bytes: Annotated[int, Field(ge=0)]
    cpu_seconds: Annotated[float, Field(ge=0)]
    processes: Annotated[int, Field(ge=0)]
    output_bytes: Annotated[int, Field(ge=10_000)]


def register(registry: ToolRegistry) -> None:
    _notebooks(registry)
    _runs(registry)
    _edits(registry)
    _views(registry)
    _documents(registry)


def _notebooks(registry: ToolRegistry) -> None:
    async def create_notebook(
        ctx: ToolContext,
        name: str | None = None,
        runtime: str | None = None,
        isolation: Literal["session", "cell"] = "session",
        on_error: Literal["keep", "rollback"] = "keep",
        python: str | None = None,
        shell: Literal["ipython"] | None = None,
        limits: Limits | None = None,
        network: list[str] | None = None,
        mirror: str | None = None,
        use: bool = True,
    ) -> ToolResult:
        """Make a notebook with its own namespace, and (use) make it current. isolation="cell": each cell its own
        process; on_error="rollback" undoes what a failed cell did; python: a path, or "venv" to %pip install into;
        shell="ipython": IPython runs every cell; network narrows the hosts code reaches; mirror: an ipynb to keep in
        step. With runtime="jupyter", mirror is its path there, python a kernelspec."""
        caller = ctx.client
        place = None
        if runtime == JUPYTER:
            place, python, mirror = await _place(ctx, caller, name, mirror, python or ""), None, None
        if mirror is not None:
            _check_ending(mirror)
        asked = _policy(isolation, on_error, python, shell, limits or {}, network)
        policy = ctx.app.caller_policy.check_policy(caller, asked, runtime)
        book = await ctx.app.notebooks.create(caller.principal, name, runtime, policy, place)
        if use:
            ctx.app.current.set(caller, book)
        if mirror is not None:
            await _mirror(ctx, book, mirror)
        said = f"Made notebook {book.title!r}" + (now_current(caller) if use else ".")
        return ToolResult(content=said, structured_content=dict(await ctx.info(book)))

    async def list_notebooks(ctx: ToolContext) -> ToolResult:
        """Your notebooks; the current one is marked."""
        books = await ctx.app.sharing.list_accessible(ctx.client)
        infos = [await ctx.info(book) for book, _ in books]
        rows = [_row(info, access if book.seen_as else None) for info, (book, access) in zip(infos, books, strict=True)]
        found: NotebookList = {"notebooks": infos}
        return ToolResult(content="\n".join(rows) or "no notebooks yet", structured_content=dict(found))

    async def use_notebook(ctx: ToolContext, name: str) -> ToolResult:
        """Make a notebook current: calls that name none mean this one."""
        book = await ctx.app.current.choose(client := ctx.client, name)
        said = "is there" + now_current(client) if client.is_shared else "is current."
        return ToolResult(content=f"Notebook {name!r} {said}", structured_content=dict(await ctx.info(book)))

    async def clear_notebook(ctx: ToolContext, notebook: str | None = None) -> ToolResult:
        """Delete all cells and empty the namespace."""
        book = await ctx.notebook(notebook)
        await ctx.app.kernels.reset(book)
        await ctx.app.cells.delete_all(book)
        said = f"Notebook {book.title!r} is empty: no cells, no variables."
        return ToolResult(content=said, structured_content={"notebook": book.title, "message": said})

    registry.add(create_notebook, "Create notebook", NotebookInfo)
    registry.add(list_notebooks, "List notebooks", NotebookList, read_only=True)
    registry.add(use_notebook, "Use notebook", NotebookInfo, idempotent=True)
    registry.add(clear_notebook, "Clear notebook", Done, destructive=True, idempotent=True)


async def _place(
    ctx: ToolContext, caller: Client, name: str | None, path: str | None, spec: str
) -> DocumentLocation | None:
    """The document on a Jupyter server that is meant, where one is: it is found, or made."""
    ctx.app.caller_policy.check_jupyter(caller)
    if name is None:
        raise InvalidRequest('A notebook with runtime="jupyter" needs a name, after which its document is called.')
    if await ctx.app.notebooks.find(caller.principal, name) is not None or not (path or spec):
        return None
    return await ctx.app.jupyter.place("", path or f"{name}.ipynb", spec=spec)


def _row(info: NotebookInfo, shared: Access | None) -> str:
    row = f"{'*' if info['current'] else ' '} {info['name']}: {count(info['cells'], 'cell')}, kernel {info['kernel']}"
    return f"{row}, shared with you to {shared}" if shared else row


def _check_ending(path: str) -> None:
    from quire.notebook_format import files

    files.check_ending(path)


async def _mirror(ctx: ToolContext, book: Notebook, path: str) -> None:
    try:
        target = safe_files.resolve_inside(ctx.app.workspace(book), path)
    except InvalidRequest as error:
        raise InvalidRequest(f"Made notebook {book.title!r}, but without a mirror: {error}") from error
    if await anyio.Path(target).exists():
        raise InvalidRequest(
            f"Made notebook {book.title!r}, but without a mirror: there is a file {path} already. import_ipynb brings "
            "it in; export_notebook_as_ipynb with mirror=true overwrites it."
        )
    await ctx.app.mirrors.set(book, str(target))


def _policy(
    isolation: str, on_error: str, python: str | None, shell: str | None, limits: Limits, network: list[str] | None
) -> Policy:
    return Policy(
        isolation=isolation,
        on_error=on_error,
        python=python or "",
        shell=shell or "",
        memory=limits.get("memory_bytes"),
        cpu=limits.get("cpu_seconds"),
        processes=limits.get("processes"),
        output=limits.get("output_bytes"),
        network=None if network is None else tuple(network),
    )


def _runs(registry: ToolRegistry) -> None:
    async def add_cell(
        ctx: ToolContext,
        code: str,
        execute: bool = True,
        cell_number: int | None = None,
        timeout: float | None = None,
        cell_type: Kind = "code",
        notebook: str | None = None,
    ) -> ToolResult:
        """Append a cell, or insert it at cell_number (from 0), and run it."""
        book = await ctx.notebook(notebook)
        if execute and cell_type == "code":
            cell, notice = await ctx.run(book, code, at=cell_number, timeout=timeout, answers=True)
            return await ctx.render.cell(book, cell, notice)
        cell = await ctx.app.cells.add(book, code, CellKind(cell_type), cell_number)
        return await ctx.render.cell(book, cell)

    async def execute_cell(
        ctx: ToolContext, cell_id_or_number: int | str, timeout: float | None = None, notebook: str | None = None
    ) -> ToolResult:
        """Run a cell that is there, or several until one fails: "2-5", "3-" (from there on), "all"."""
        book = await ctx.notebook(notebook)
        several = await ctx.app.cells.find_range(book, cell_id_or_number)
        if several is not None:
            return await ctx.run_several(book, several, timeout)
        there = await ctx.app.cells.get(book, cell_id_or_number)
        cell, notice = await ctx.run(book, there, timeout=timeout, answers=True)
        return await ctx.render.cell(book, cell, notice)

    registry.add(add_cell, "Add cell", ShownCell, open_world=True)
    registry.add(execute_cell, "Execute cell", ShownCell, open_world=True)


def _edits(registry: ToolRegistry) -> None:
    async def edit_cell(
        ctx: ToolContext,
        cell_id_or_number: int | str,
        code: str | None = None,
        cell_type: Kind | None = None,
        metadata: dict[str, Any] | None = None,
        expected_version: int | None = None,
        notebook: str | None = None,
    ) -> ToolResult:
        """Change a cell's source, kind or metadata (tags too; null removes a key); it is not run. With
        expected_version, refused if it was edited meanwhile."""
        book = await ctx.notebook(notebook)
        if code is None and cell_type is None and metadata is None:
            raise InvalidRequest("There is nothing to change: give code, cell_type or metadata. Nothing was changed.")
        edit = Edit(source=code, kind=CellKind(cell_type) if cell_type else None, metadata=metadata)
        cell = await ctx.app.cells.edit(book, cell_id_or_number, edit, expected_version)
        said = f"Cell {cell.number} is now version {cell.version}"
        said += "; execute_cell runs it." if cell.kind is CellKind.CODE and code is not None else "."
        return _short(book, cell, said)

    async def move_cell(
        ctx: ToolContext, cell_id_or_number: int | str, to_number: int, notebook: str | None = None
    ) -> ToolResult:
        """Move a cell to another number; those after it are renumbered."""
        book = await ctx.notebook(notebook)
        cell = await ctx.app.cells.move(book, cell_id_or_number, to_number)
        return _short(book, cell, f"Cell {cell.id} is now number {cell.number}.")

    async def delete_cell(ctx: ToolContext, cell_id_or_number: int | str, notebook: str | None = None) -> ToolResult:
        """Remove a cell; what it defined stays in the namespace."""
        book = await ctx.notebook(notebook)
        cell = await ctx.app.cells.delete(book, cell_id_or_number)
        done: Done = {"notebook": book.title, "message": f"Deleted cell {cell.number} ({cell.id})."}
        return ToolResult(content=done["message"], structured_content=dict(done))

    registry.add(edit_cell, "Edit cell", CellInfo, destructive=True)
    registry.add(move_cell, "Move cell", CellInfo, idempotent=True)
    registry.add(delete_cell, "Delete cell", Done, destructive=True)


def _views(registry: ToolRegistry) -> None:
    async def get_cell(ctx: ToolContext, cell_id_or_number: int | str, notebook: str | None = None) -> ToolResult:
        """A cell with its source and outputs; of a running one, what it has shown so far."""
        book = await ctx.notebook(notebook, Access.READ)
        cell = await ctx.cell(book, cell_id_or_number)
        answer = await ctx.render.cell(book, cell, code=True)
        answer.is_error = False  # the cell may have failed; showing it did not
        return answer

    async def list_cells(
        ctx: ToolContext, start: int = 0, limit: int | None = None, notebook: str | None = None
    ) -> ToolResult:
        """The cells, a line each: number, id, state, first statement, kinds of output."""
        book = await ctx.notebook(notebook, Access.READ)
        kept = await ctx.app.cells.list_cells(book, start, limit or _PAGE)
        cells = [ctx.app.runs.live(book, cell) for cell in kept]  # what is not on disk yet has not ended
        found: CellList = {
            "notebook": book.title,
            "total": book.cells,
            "cells": [render.describe(book, cell) for cell in cells],
        }
        rows = [render.row(cell) for cell in cells]
        nothing = f"no cells from {start:,} on: the last one is {book.cells - 1:,}" if book.cells else "no cells"
        after = book.cells - start - len(cells)
        if after > 0:
            rows.append(f"... {after:,} more: list_cells(start={start + len(cells)})")
        return ToolResult(content="\n".join(rows) or nothing, structured_content=dict(found))

    registry.add(get_cell, "Get cell", ShownCell, read_only=True)
    registry.add(list_cells, "List cells", CellList, read_only=True)


def _documents(registry: ToolRegistry) -> None:
    async def export_notebook_as_ipynb(
        ctx: ToolContext, path: str | None = None, mirror: bool = False, notebook: str | None = None
    ) -> ToolResult:
        """The notebook as Jupyter's ipynb: its text, or written to a path in the workspace (.py: a script; .md). mirror
        keeps the file current."""
        book = await ctx.notebook(notebook, Access.READ if path is None else Access.WRITE)
        found: Document = {"notebook": book.title, "cells": book.cells, "uri": render.ipynb_uri(book)}
        if path is not None:
            target = safe_files.resolve_inside(ctx.app.workspace(book), path)
            kept = await _keep(ctx, book, str(target), mirror=mirror)
            found["path"] = str(target)
            text = f"Wrote {count(book.cells, 'cell')} to {target}{kept}."
        elif mirror:
            raise InvalidRequest("mirror needs a path: the file that is to be kept current. Nothing was written.")
        elif len(text := await document(ctx, book)) > _DOCUMENT_CHARS:
            text = f"The document has {len(text):,} characters: read {found['uri']}, or give a path to write it to."
        return ToolResult(content=text, structured_content=dict(found))

    async def import_ipynb(
        ctx: ToolContext, path_or_json: str, execute: bool = False, notebook: str | None = None
    ) -> ToolResult:
        """Append the cells of an ipynb, given as JSON text or as a path in the workspace (also .py), and (execute) run
        them."""
        from quire.notebook_format import files

        book = await ctx.notebook(notebook)
        where = ctx.app.workspace(book)
        given = await files.document(path_or_json, lambda path: safe_files.read_in_workspace(where, path))
        added = await ctx.app.documents.import_cells(book, given.cells, given.metadata)
        done = f"Imported {count(len(added), 'cell')}"
        notes = "".join(f" {note[0].upper()}{note[1:]}." for note in given.notes)
        found: Document = {"notebook": book.title, "cells": len(added), "uri": render.ipynb_uri(book)}
        ran, failed = await _run_all(ctx, book, added) if execute else (0, None)
        if failed is not None:
            answer = await ctx.render.cell(book, failed, f"{done}; ran {ran}, the last one failed.{notes}")
            answer.structured_content = dict(found)
            return answer
        if not execute and any(cell.run for cell in added):
            notes = f" Outputs and counts are the document's.{notes}"
        text = f"{done}, ran {ran}.{notes}" if execute else f"{done}.{notes}"
        return ToolResult(content=text, structured_content=dict(found))

    async def get_cell_image(
        ctx: ToolContext, cell_id_or_number: int | str, index: int = 0, notebook: str | None = None
    ) -> ToolResult:
        """A cell's picture, whole; index counts its images from 0."""
        book = await ctx.notebook(notebook, Access.READ)
        image = await ctx.app.outputs.read_image(await ctx.cell(book, cell_id_or_number), index)
        if image.format == "svg":
            return ToolResult(content=[TextContent(type="text", text=image.data.decode("utf-8", "replace"))])
        return ToolResult(content=[ImageContent(type="image", data=image.base64, mime_type=image.mime)])

    registry.add(export_notebook_as_ipynb, "Export as ipynb", Document, destructive=True, idempotent=True)
    registry.add(import_ipynb, "Import ipynb", Document, open_world=True)
    registry.add(get_cell_image, "Get cell image", None, read_only=True)


async def document(ctx: ToolContext, book: Notebook) -> str:
    """The notebook's ipynb text."""
    from quire.notebook_format import ipynb

    return await ctx.app.documents.export(book, lambda fresh, cells: ipynb.dumps(fresh, cells, lines=False))


async def _run_all(ctx: ToolContext, book: Notebook, cells: list[Cell]) -> tuple[int, Cell | None]:
    """Run those that are code until one fails: how many ran, and the one that failed."""
    ran = 0
    for cell in cells:
        if cell.kind is CellKind.CODE and cell.source.strip():
            ctx.app.kernels.slots.get(book).lineage.enter_burst()
            last, _ = await ctx.run(book, cell, asks=False)
            ran += 1
            if last.state.failed:
                return ran, last
    return ran, None


async def _keep(ctx: ToolContext, book: Notebook, path: str, *, mirror: bool) -> str:
    """Write the document, once or from now on; what to say about that."""
    from quire.notebook_format import files

    if mirror:
        await ctx.app.mirrors.set(book, path)
        return ", which is kept current from now on"
    ended = (await ctx.app.documents.reload(book)).mirror == path
    if ended:
        await ctx.app.mirrors.set(book, "")
    text = await ctx.app.documents.export(book, lambda fresh, cells: files.dumps(path, fresh, cells))
    await safe_files.write_in_workspace(ctx.app.workspace(book), path, text)
    return ", which is no longer kept current" if ended else ""


def _short(book: Notebook, cell: Cell, text: str) -> ToolResult:
    return ToolResult(content=text, structured_content=dict(render.describe(book, cell)))


_DOCUMENT_CHARS = 16_000  # of an ipynb given as text
_PAGE = 100  # cells of a list where no limit is given
