"""The `notebook` tool set: notebooks of cells, kept on disk."""

from typing import Annotated, Any, Literal

import anyio
from fastmcp import Context
from fastmcp.tools import ToolResult
from mcp_types import ImageContent, TextContent
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from quire.core.errors import InvalidRequest
from quire.core.model import Cell, CellKind, DocumentLocation, Edit, Notebook, Policy
from quire.core.notebooks import workspaces
from quire.core.notebooks.access import Access
from quire.core.notebooks.current import Client
from quire.core.phrases import count
from quire.core.ports.jupyter import RUNTIME as JUPYTER
from quire.frontends.mcp import render
from quire.frontends.mcp.desk import Desk, now_current
from quire.frontends.mcp.results import (
    CellInfo,
    CellList,
    Document,
    Done,
    NotebookInfo,
    NotebookList,
    ShownCell,
)
from quire.frontends.mcp.toolsets import Shelf

Kind = Literal["code", "markdown", "raw"]


class Limits(TypedDict, total=False):
    """Zero is no limit."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    memory_bytes: Annotated[int, Field(ge=0)]
    cpu_seconds: Annotated[float, Field(ge=0)]
    processes: Annotated[int, Field(ge=0)]
    output_bytes: Annotated[int, Field(ge=10_000)]


def register(shelf: Shelf, desk: Desk) -> None:
    _notebooks(shelf, desk)
    _runs(shelf, desk)
    _edits(shelf, desk)
    _views(shelf, desk)
    _documents(shelf, desk)


def _notebooks(shelf: Shelf, desk: Desk) -> None:
    async def create_notebook(
        ctx: Context,
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
        caller = desk.client(ctx)
        place = None
        if runtime == JUPYTER:
            place, python, mirror = await _place(desk, caller, name, mirror, python or ""), None, None
        if mirror is not None:
            _check_ending(mirror)
        asked = _policy(isolation, on_error, python, shell, limits or {}, network)
        policy = desk.app.confines.policy(caller, asked, runtime)
        book = await desk.app.notebooks.create(caller.principal, name, runtime, policy, place)
        if use:
            desk.app.current.use(caller, book)
        if mirror is not None:
            await _mirror(desk, book, mirror)
        said = f"Made notebook {book.title!r}" + (now_current(caller) if use else ".")
        return ToolResult(content=said, structured_content=dict(await desk.info(ctx, book)))

    async def list_notebooks(ctx: Context) -> ToolResult:
        """Your notebooks; the current one is marked."""
        books = await desk.app.sharing.all(desk.client(ctx))
        infos = [await desk.info(ctx, book) for book, _ in books]
        rows = [_row(info, access if book.seen_as else None) for info, (book, access) in zip(infos, books, strict=True)]
        found: NotebookList = {"notebooks": infos}
        return ToolResult(content="\n".join(rows) or "no notebooks yet", structured_content=dict(found))

    async def use_notebook(ctx: Context, name: str) -> ToolResult:
        """Make a notebook current: calls that name none mean this one."""
        book = await desk.app.current.choose(client := desk.client(ctx), name)
        said = "is there" + now_current(client) if client.is_shared else "is current."
        return ToolResult(content=f"Notebook {name!r} {said}", structured_content=dict(await desk.info(ctx, book)))

    async def clear_notebook(ctx: Context, notebook: str | None = None) -> ToolResult:
        """Delete all cells and empty the namespace."""
        book = await desk.notebook(ctx, notebook)
        await desk.app.kernels.reset(book)
        await desk.app.notebooks.clear(book)
        said = f"Notebook {book.title!r} is empty: no cells, no variables."
        return ToolResult(content=said, structured_content={"notebook": book.title, "message": said})

    shelf.put(create_notebook, "Create notebook", NotebookInfo)
    shelf.put(list_notebooks, "List notebooks", NotebookList, reads=True)
    shelf.put(use_notebook, "Use notebook", NotebookInfo, repeats=True)
    shelf.put(clear_notebook, "Clear notebook", Done, destroys=True, repeats=True)


async def _place(desk: Desk, caller: Client, name: str | None, path: str | None, spec: str) -> DocumentLocation | None:
    """The document on a Jupyter server that is meant, where one is: it is found, or made."""
    desk.app.confines.check_jupyter(caller)
    if name is None:
        raise InvalidRequest('A notebook with runtime="jupyter" needs a name, after which its document is called.')
    if await desk.app.notebooks.find(caller.principal, name) is not None or not (path or spec):
        return None
    return await desk.app.jupyter.place("", path or f"{name}.ipynb", spec=spec)


def _row(info: NotebookInfo, shared: Access | None) -> str:
    row = f"{'*' if info['current'] else ' '} {info['name']}: {count(info['cells'], 'cell')}, kernel {info['kernel']}"
    return f"{row}, shared with you to {shared}" if shared else row


def _check_ending(path: str) -> None:
    from quire.notebook_format import files

    files.check_ending(path)


async def _mirror(desk: Desk, book: Notebook, path: str) -> None:
    try:
        target = workspaces.inside(desk.app.workspace(book), path)
    except InvalidRequest as error:
        raise InvalidRequest(f"Made notebook {book.title!r}, but without a mirror: {error}") from error
    if await anyio.Path(target).exists():
        raise InvalidRequest(
            f"Made notebook {book.title!r}, but without a mirror: there is a file {path} already. import_ipynb brings "
            "it in; export_notebook_as_ipynb with mirror=true overwrites it."
        )
    await desk.app.mirrors.set(book, str(target))


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


def _runs(shelf: Shelf, desk: Desk) -> None:
    async def add_cell(
        ctx: Context,
        code: str,
        execute: bool = True,
        cell_number: int | None = None,
        timeout: float | None = None,
        cell_type: Kind = "code",
        notebook: str | None = None,
    ) -> ToolResult:
        """Append a cell, or insert it at cell_number (from 0), and run it."""
        book = await desk.notebook(ctx, notebook)
        if execute and cell_type == "code":
            cell, notice = await desk.run(ctx, book, code, at=cell_number, timeout=timeout, answers=True)
            return await desk.render.cell(book, cell, notice)
        cell = await desk.app.notebooks.add_cell(book, code, CellKind(cell_type), cell_number)
        return await desk.render.cell(book, cell)

    async def execute_cell(
        ctx: Context, cell_id_or_number: int | str, timeout: float | None = None, notebook: str | None = None
    ) -> ToolResult:
        """Run a cell that is there, or several until one fails: "2-5", "3-" (from there on), "all"."""
        book = await desk.notebook(ctx, notebook)
        several = await desk.app.notebooks.span(book, cell_id_or_number)
        if several is not None:
            return await desk.run_several(ctx, book, several, timeout)
        there = await desk.app.notebooks.cell(book, cell_id_or_number)
        cell, notice = await desk.run(ctx, book, there, timeout=timeout, answers=True)
        return await desk.render.cell(book, cell, notice)

    shelf.put(add_cell, "Add cell", ShownCell, runs=True)
    shelf.put(execute_cell, "Execute cell", ShownCell, runs=True)


def _edits(shelf: Shelf, desk: Desk) -> None:
    async def edit_cell(
        ctx: Context,
        cell_id_or_number: int | str,
        code: str | None = None,
        cell_type: Kind | None = None,
        metadata: dict[str, Any] | None = None,
        expected_version: int | None = None,
        notebook: str | None = None,
    ) -> ToolResult:
        """Change a cell's source, kind or metadata (tags too; null removes a key); it is not run. With
        expected_version, refused if it was edited meanwhile."""
        book = await desk.notebook(ctx, notebook)
        if code is None and cell_type is None and metadata is None:
            raise InvalidRequest("There is nothing to change: give code, cell_type or metadata. Nothing was changed.")
        edit = Edit(source=code, kind=CellKind(cell_type) if cell_type else None, metadata=metadata)
        cell = await desk.app.notebooks.edit_cell(book, cell_id_or_number, edit, expected_version)
        said = f"Cell {cell.number} is now version {cell.version}"
        said += "; execute_cell runs it." if cell.kind is CellKind.CODE and code is not None else "."
        return _short(book, cell, said)

    async def move_cell(
        ctx: Context, cell_id_or_number: int | str, to_number: int, notebook: str | None = None
    ) -> ToolResult:
        """Move a cell to another number; those after it are renumbered."""
        book = await desk.notebook(ctx, notebook)
        cell = await desk.app.notebooks.move_cell(book, cell_id_or_number, to_number)
        return _short(book, cell, f"Cell {cell.id} is now number {cell.number}.")

    async def delete_cell(ctx: Context, cell_id_or_number: int | str, notebook: str | None = None) -> ToolResult:
        """Remove a cell; what it defined stays in the namespace."""
        book = await desk.notebook(ctx, notebook)
        cell = await desk.app.notebooks.delete_cell(book, cell_id_or_number)
        done: Done = {"notebook": book.title, "message": f"Deleted cell {cell.number} ({cell.id})."}
        return ToolResult(content=done["message"], structured_content=dict(done))

    shelf.put(edit_cell, "Edit cell", CellInfo, destroys=True)
    shelf.put(move_cell, "Move cell", CellInfo, repeats=True)
    shelf.put(delete_cell, "Delete cell", Done, destroys=True)


def _views(shelf: Shelf, desk: Desk) -> None:
    async def get_cell(ctx: Context, cell_id_or_number: int | str, notebook: str | None = None) -> ToolResult:
        """A cell with its source and outputs; of a running one, what it has shown so far."""
        book = await desk.notebook(ctx, notebook, Access.READ)
        cell = await desk.cell(book, cell_id_or_number)
        answer = await desk.render.cell(book, cell, code=True)
        answer.is_error = False  # the cell may have failed; showing it did not
        return answer

    async def list_cells(
        ctx: Context, start: int = 0, limit: int | None = None, notebook: str | None = None
    ) -> ToolResult:
        """The cells, a line each: number, id, state, first statement, kinds of output."""
        book = await desk.notebook(ctx, notebook, Access.READ)
        kept = await desk.app.notebooks.cells(book, start, limit or _PAGE)
        cells = [desk.app.runs.live(book, cell) for cell in kept]  # what is not on disk yet has not ended
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

    shelf.put(get_cell, "Get cell", ShownCell, reads=True)
    shelf.put(list_cells, "List cells", CellList, reads=True)


def _documents(shelf: Shelf, desk: Desk) -> None:
    async def export_notebook_as_ipynb(
        ctx: Context, path: str | None = None, mirror: bool = False, notebook: str | None = None
    ) -> ToolResult:
        """The notebook as Jupyter's ipynb: its text, or written to a path in the workspace (.py: a script; .md). mirror
        keeps the file current."""
        book = await desk.notebook(ctx, notebook, Access.READ if path is None else Access.WRITE)
        found: Document = {"notebook": book.title, "cells": book.cells, "uri": render.ipynb_uri(book)}
        if path is not None:
            target = workspaces.inside(desk.app.workspace(book), path)
            kept = await _keep(desk, book, str(target), mirror=mirror)
            found["path"] = str(target)
            text = f"Wrote {count(book.cells, 'cell')} to {target}{kept}."
        elif mirror:
            raise InvalidRequest("mirror needs a path: the file that is to be kept current. Nothing was written.")
        elif len(text := await document(desk, book)) > _DOCUMENT_CHARS:
            text = f"The document has {len(text):,} characters: read {found['uri']}, or give a path to write it to."
        return ToolResult(content=text, structured_content=dict(found))

    async def import_ipynb(
        ctx: Context, path_or_json: str, execute: bool = False, notebook: str | None = None
    ) -> ToolResult:
        """Append the cells of an ipynb, given as JSON text or as a path in the workspace (also .py), and (execute) run
        them."""
        from quire.notebook_format import files

        book = await desk.notebook(ctx, notebook)
        where = desk.app.workspace(book)
        given = await files.document(path_or_json, lambda path: workspaces.read(where, path))
        added = await desk.app.documents.bring_in(book, given.cells, given.metadata)
        done = f"Imported {count(len(added), 'cell')}"
        notes = "".join(f" {note[0].upper()}{note[1:]}." for note in given.notes)
        found: Document = {"notebook": book.title, "cells": len(added), "uri": render.ipynb_uri(book)}
        ran, failed = await _run_all(desk, ctx, book, added) if execute else (0, None)
        if failed is not None:
            answer = await desk.render.cell(book, failed, f"{done}; ran {ran}, the last one failed.{notes}")
            answer.structured_content = dict(found)
            return answer
        if not execute and any(cell.run for cell in added):
            notes = f" Outputs and counts are the document's.{notes}"
        text = f"{done}, ran {ran}.{notes}" if execute else f"{done}.{notes}"
        return ToolResult(content=text, structured_content=dict(found))

    async def get_cell_image(
        ctx: Context, cell_id_or_number: int | str, index: int = 0, notebook: str | None = None
    ) -> ToolResult:
        """A cell's picture, whole; index counts its images from 0."""
        book = await desk.notebook(ctx, notebook, Access.READ)
        image = await desk.app.notebooks.image(await desk.cell(book, cell_id_or_number), index)
        if image.format == "svg":
            return ToolResult(content=[TextContent(type="text", text=image.data.decode("utf-8", "replace"))])
        return ToolResult(content=[ImageContent(type="image", data=image.base64, mime_type=image.mime)])

    shelf.put(export_notebook_as_ipynb, "Export as ipynb", Document, destroys=True, repeats=True)
    shelf.put(import_ipynb, "Import ipynb", Document, runs=True)
    shelf.put(get_cell_image, "Get cell image", None, reads=True)


async def document(desk: Desk, book: Notebook) -> str:
    """The notebook's ipynb text."""
    from quire.notebook_format import ipynb

    return await desk.app.documents.text(book, lambda fresh, cells: ipynb.dumps(fresh, cells, lines=False))


async def _run_all(desk: Desk, ctx: Context, book: Notebook, cells: list[Cell]) -> tuple[int, Cell | None]:
    """Run those that are code until one fails: how many ran, and the one that failed."""
    ran = 0
    for cell in cells:
        if cell.kind is CellKind.CODE and cell.source.strip():
            desk.app.kernels.slots.get(book).lineage.enter_burst()
            last, _ = await desk.run(ctx, book, cell, asks=False)
            ran += 1
            if last.state.failed:
                return ran, last
    return ran, None


async def _keep(desk: Desk, book: Notebook, path: str, *, mirror: bool) -> str:
    """Write the document, once or from now on; what to say about that."""
    from quire.notebook_format import files

    if mirror:
        await desk.app.mirrors.set(book, path)
        return ", which is kept current from now on"
    ended = (await desk.app.documents.fresh(book)).mirror == path
    if ended:
        await desk.app.mirrors.set(book, "")
    text = await desk.app.documents.text(book, lambda fresh, cells: files.dumps(path, fresh, cells))
    await workspaces.write(desk.app.workspace(book), path, text)
    return ", which is no longer kept current" if ended else ""


def _short(book: Notebook, cell: Cell, text: str) -> ToolResult:
    return ToolResult(content=text, structured_content=dict(render.describe(book, cell)))


_DOCUMENT_CHARS = 16_000  # of an ipynb given as text
_PAGE = 100  # cells of a list where no limit is given
