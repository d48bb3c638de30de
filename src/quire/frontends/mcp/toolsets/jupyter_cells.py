"""Cells in the tool set `jupyter`: read, written and run, by index or by id."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Literal

import anyio.to_thread
from fastmcp import Context
from fastmcp.tools import ToolResult
from mcp_types import ContentBlock, TextContent
from pydantic import Field

from quire.core.errors import InvalidRequest, NotFound, VersionConflict
from quire.core.model import Cell, CellId, CellKind, CellState, Edit, NewCell, Notebook, NotebookId
from quire.core.notebooks.access import Access
from quire.core.notebooks.current import Client
from quire.core.phrases import suggestion
from quire.core.runs.model_text import visible
from quire.frontends.mcp import default_document
from quire.frontends.mcp.desk import Desk
from quire.frontends.mcp.toolsets import Shelf, jupyter_texts

From0 = Annotated[int, Field(ge=0)]
_SHOWN = 100_000  # cells of clients of which it is remembered what these know
_AROUND = 5  # cells before one that is shown with its neighbours
OTHER_NAMES = {"timeout_seconds": "timeout"}  # of parameters, as older clients call them


class Books:
    """Which notebook and which cell a call means."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._shown: OrderedDict[tuple[Client, NotebookId, CellId], int] = OrderedDict()  # hashes of sources

    def shown(self, ctx: Context, book: Notebook, *cells: Cell) -> None:
        """The client knows their sources now."""
        for cell in cells:
            key = (self._desk.client(ctx), book.id, cell.id)
            self._shown[key] = hash(cell.source)
            self._shown.move_to_end(key)
        while len(self._shown) > _SHOWN:
            self._shown.popitem(last=False)

    def knows(self, ctx: Context, book: Notebook, cell: Cell) -> bool:
        """Whether the client knows its source as it is, or was never shown any."""
        here = hash(cell.source)
        return self._shown.get((self._desk.client(ctx), book.id, cell.id), here) == here

    async def overwrite(self, ctx: Context, book: Notebook, cell: Cell, source: str) -> None:
        """Raises VersionConflict where somebody has changed what the client knows."""
        if not self.knows(ctx, book, cell):
            self.shown(ctx, book, cell)
            raise VersionConflict(
                f"Cell {cell.number} was edited since it was shown. Nothing was changed; call again to overwrite it "
                f"all the same. Its source now:\n{visible(cell.source)}"
            )
        try:
            edited = await self._desk.app.notebooks.edit_cell(book, cell.id, Edit(source=source), cell.version)
        except VersionConflict:
            self.shown(ctx, book, await self._desk.app.notebooks.cell(book, cell.id))  # the refusal says it
            raise
        self.shown(ctx, book, edited)

    async def named(self, ctx: Context, name: str | None, needed: Access = Access.WRITE) -> Notebook:
        """The named one, or the client's current one."""
        client = self._desk.client(ctx)
        if name is None and not self._desk.app.current.has_chosen(client):
            if not self._desk.app.jupyter.document:
                raise InvalidRequest("No active notebook. Use the use_notebook tool to activate a notebook first.")
            name = (await default_document.open_for(self._desk.app, client)).name
        try:
            return await self._desk.notebook(ctx, name, needed)
        except NotFound:
            raise NotFound(await self.not_there(client, name or "")) from None

    async def not_there(self, client: Client, name: str) -> str:
        names = [book.title for book, _ in await self._desk.app.sharing.all(client)]
        near = await anyio.to_thread.run_sync(suggestion, name, names)  # there may be thousands
        return (
            f"Notebook '{name}' is not connected. All currently connected notebooks: {names}.{near} use_notebook with "
            "a notebook_path connects one."
        )

    async def cell(
        self, book: Notebook, index: int | None, id_: str | None, given: str = "cell_index or cell_id"
    ) -> Cell:
        """By its id where one is given."""
        if index is None and id_ is None:
            raise InvalidRequest(f"Which cell? Pass {given}.")
        try:
            return await self._desk.cell(book, index if id_ is None else id_)  # type: ignore[arg-type]  # one is given
        except NotFound:
            if id_ is not None:
                raise
            total = jupyter_texts.number_of(len(await self._desk.app.notebooks.cells(book)), "cell")
            raise NotFound(f"Cell index {index} is out of range. Notebook has {total}.") from None


def register(shelf: Shelf, desk: Desk, books: Books) -> None:
    _reading(shelf, desk, books)
    _writing(shelf, desk, books)
    _editing(shelf, desk, books)
    _running(shelf, desk, books)


def said(text: str) -> ToolResult:
    return ToolResult(content=text)


def _reading(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def read_notebook(
        ctx: Context,
        notebook_name: str,
        response_format: Literal["brief", "detailed"] = "brief",
        start_index: From0 = 0,
        limit: From0 = 20,
    ) -> ToolResult:
        """A notebook's cells: brief as a table with first lines, detailed with their sources. limit=0 shows all."""
        book = await books.named(ctx, notebook_name, Access.READ)
        cells = await desk.app.notebooks.cells(book)
        total = jupyter_texts.number_of(len(cells), "cell")
        if start_index >= len(cells) and cells:
            raise NotFound(f"Start index {start_index} is out of range. Notebook has {total}.")
        shown = cells[start_index : start_index + limit if limit else None]
        most = max(500, 2 * desk.result_chars // max(1, len(shown)))
        if response_format == "detailed":
            books.shown(ctx, book, *shown)
        text = jupyter_texts.brief(shown) if response_format == "brief" else jupyter_texts.detailed(shown, most)
        return said(f"Notebook {notebook_name} has {total}.\n\n{text}")

    async def read_cell(
        ctx: Context,
        cell_index: From0 | None = None,
        include_outputs: bool = True,
        notebook_name: str | None = None,
        cell_id: str | None = None,
    ) -> ToolResult:
        """One cell: its source, and what it shows."""
        book = await books.named(ctx, notebook_name, Access.READ)
        cell = await books.cell(book, cell_index, cell_id)
        books.shown(ctx, book, cell)
        lines = (jupyter_texts.head(cell), jupyter_texts.clipped(visible(cell.source), 2 * desk.result_chars))
        content: list[ContentBlock] = [_text(line) for line in lines]
        if cell.kind is CellKind.CODE and include_outputs:
            content += await desk.render.outputs(book, cell)
        return ToolResult(content=content)

    shelf.put(read_notebook, "Read notebook", None, reads=True)
    shelf.put(read_cell, "Read cell", None, reads=True)


def _writing(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def insert_cell(
        ctx: Context,
        cell_index: Annotated[int, Field(ge=-1)],
        cell_type: Literal["code", "markdown", "raw"],
        cell_source: str,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Insert a cell before cell_index (0-based; -1 appends). It is not run."""
        book = await books.named(ctx, notebook_name)
        at = await _place(desk, book, cell_index)
        made = await desk.app.notebooks.add_cells(book, [_new(cell_source, cell_type)], at)
        books.shown(ctx, book, *made)
        first = f"Cell inserted successfully at index {made[0].number} ({cell_type})!"
        return said(f"{first}\n{await _around(desk, book, made[0].number, 'now has')}")

    async def delete_cell(
        ctx: Context,
        cell_indices: Annotated[list[int], Field(min_length=1)] | None = None,
        include_source: bool = True,
        notebook_name: str | None = None,
        cell_ids_to_delete: Annotated[list[str], Field(min_length=1)] | None = None,
        cell_index: From0 | None = None,
    ) -> ToolResult:
        """Delete cells, by their indices or ids: all or none."""
        book = await books.named(ctx, notebook_name)
        indices = cell_indices or ([cell_index] if cell_index is not None else [])
        which: list[tuple[int | None, str | None]] = [(None, id_) for id_ in cell_ids_to_delete or []]
        cells = [await books.cell(book, *each) for each in which or [(index, None) for index in indices]]
        if not cells:
            raise InvalidRequest("Which cells? Pass cell_indices or cell_ids_to_delete.")
        if len({cell.id for cell in cells}) < len(cells):
            raise InvalidRequest(f"A cell is named twice: {cell_ids_to_delete or indices}. Nothing was deleted.")
        lines = []
        for cell in cells:
            await desk.app.notebooks.delete_cell(book, cell.id)
            lines.append(f"Cell {cell.number} ({cell.kind.value}) deleted successfully.")
            if include_source:
                lines += [f"deleted cell source:\n{visible(cell.source)}", "\n---\n"]
        return said("\n".join(lines))

    async def move_cell(
        ctx: Context,
        source_index: From0 | None = None,
        target_index: From0 | None = None,
        notebook_name: str | None = None,
        source_cell_id: str | None = None,
        target_cell_id: str | None = None,
    ) -> ToolResult:
        """Move a cell to where another one is."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(book, source_index, source_cell_id, "source_index or source_cell_id")
        target = (await books.cell(book, target_index, target_cell_id, "target_index or target_cell_id")).number
        moved = await desk.app.notebooks.move_cell(book, cell.id, target)
        first = f"Cell moved successfully from index {cell.number} to {moved.number} ({cell.kind.value})."
        return said(f"{first}\n{await _around(desk, book, moved.number, 'has')}")

    shelf.put(insert_cell, "Insert cell", None)
    shelf.put(delete_cell, "Delete cell", None, destroys=True)
    shelf.put(move_cell, "Move cell", None)


def _editing(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def overwrite_cell_source(
        ctx: Context,
        cell_source: str,
        cell_index: From0 | None = None,
        notebook_name: str | None = None,
        cell_id: str | None = None,
    ) -> ToolResult:
        """Give a cell another source; it is not run. The answer is the difference."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(book, cell_index, cell_id)
        await books.overwrite(ctx, book, cell, cell_source)
        return said(_edited(cell, cell_source, "overwritten"))

    async def edit_cell_source(
        ctx: Context,
        old_string: str,
        new_string: str,
        cell_index: From0 | None = None,
        replace_all: bool = False,
        notebook_name: str | None = None,
        cell_id: str | None = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a cell's source, or with replace_all every time."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(book, cell_index, cell_id)
        times = cell.source.count(old_string) if old_string else 0
        if not times:
            why = "old_string not found in cell source" if old_string else "old_string must not be empty"
            raise InvalidRequest(f"{why}. Nothing was changed. read_cell shows the source.")
        if times > 1 and not replace_all:
            found = f"old_string is not unique: it was not found once in the cell's source but {times} times."
            raise InvalidRequest(f"{found} Nothing was changed. Pass more of it, or replace_all.")
        source = cell.source.replace(old_string, new_string)
        edited = await desk.app.notebooks.edit_cell(book, cell.id, Edit(source=source), cell.version)
        if books.knows(ctx, book, cell):
            books.shown(ctx, book, edited)
        return said(_edited(cell, source, "edited"))

    async def clear_cell_output(
        ctx: Context, cell_index: From0 | None = None, notebook_name: str | None = None, cell_id: str | None = None
    ) -> ToolResult:
        """Remove what a code cell shows, and its count."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(book, cell_index, cell_id)
        if cell.kind is not CellKind.CODE:
            raise InvalidRequest(f"Cell {cell.number} is not a code cell, cannot clear output.")
        if cell.state is CellState.RUNNING:
            raise InvalidRequest(f"Cell {cell.number} is running. Let it end, then clear it.")
        if cell.run is None or not cell.outputs:
            return said(f"Cell {cell.number} had no output to clear.")
        await desk.app.notebooks.clear_outputs(book, cell)
        removed = f"({len(cell.outputs)} output(s) removed)"
        return said(f"Cell {cell.number} output cleared successfully {removed}.")

    shelf.put(overwrite_cell_source, "Overwrite cell source", None, destroys=True, repeats=True)
    shelf.put(edit_cell_source, "Edit cell source", None, destroys=True)
    shelf.put(clear_cell_output, "Clear cell output", None, destroys=True, repeats=True)


def _running(shelf: Shelf, desk: Desk, books: Books) -> None:
    async def execute_cell(
        ctx: Context,
        cell_index: From0 | None = None,
        timeout: From0 = 0,
        stream: bool = True,
        progress_interval: int = 5,
        cell_id: str | None = None,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Run a cell. timeout is in seconds; 0 is the default."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(book, cell_index, cell_id)
        return await run(desk, ctx, book, cell, timeout, stream=stream)

    async def insert_execute_code_cell(
        ctx: Context,
        cell_index: Annotated[int, Field(ge=-1)],
        cell_source: str,
        timeout: From0 = 0,
        stream: bool = True,
        progress_interval: int = 5,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Insert a code cell before cell_index (0-based; -1 appends) and run it."""
        book = await books.named(ctx, notebook_name)
        at = await _place(desk, book, cell_index)
        return await run(desk, ctx, book, cell_source, timeout, at=at, stream=stream, ran=books.shown)

    shelf.put(execute_cell, "Execute cell", None, runs=True, other_names=OTHER_NAMES)
    shelf.put(insert_execute_code_cell, "Insert and execute code cell", None, runs=True, other_names=OTHER_NAMES)


async def run(
    desk: Desk,
    ctx: Context,
    book: Notebook,
    code: str | Cell,
    timeout: float,
    *,
    at: int | None = None,
    stream: bool,
    notice: str = "",
    ran: Callable[[Context, Notebook, Cell], None] = lambda _ctx, _book, _cell: None,
) -> ToolResult:
    """Run it. A timeout comes first, then an item for each output, then how it ended where that is not plain. `ran` is
    told which cell it was; `notice` is said beside what the run itself has to say."""
    cell, said_of_run = await desk.run(ctx, book, code, at=at, timeout=timeout or None)
    notice = " ".join(filter(None, (notice, said_of_run)))
    ran(ctx, book, cell)
    content = await desk.render.outputs(book, cell)
    lines = [f"[INFO] {notice}"] if notice else []
    seconds = cell.run.seconds if cell.run is not None and cell.run.seconds is not None else 0.0
    match cell.state:
        case CellState.TIMEOUT:
            limit = timeout or desk.app.limits.cell_timeout
            content.insert(0, _text(f"[TIMEOUT ERROR: Execution exceeded {limit:g} seconds]"))
        case CellState.RUNNING | CellState.IDLE:
            lines.append(f"[RUNNING: {seconds:.1f}s elapsed. It goes on: read_cell shows what it prints.]")
        case CellState.SUCCESS if stream:
            lines.append(f"[COMPLETED in {seconds:.1f}s]")
    if not content and not lines:
        lines.append("[No output generated]")
    return ToolResult(content=[*content, *map(_text, lines)], is_error=cell.state.failed)


def _text(line: str) -> TextContent:
    return TextContent(type="text", text=line)


async def _place(desk: Desk, book: Notebook, index: int) -> int | None:
    """Where a cell is to be inserted; None appends."""
    total = len(await desk.app.notebooks.cells(book))
    if index > total:
        raise InvalidRequest(f"Index {index} is outside valid range [-1, {total}]. Use -1 to append at end.")
    return None if index == -1 else index


async def _around(desk: Desk, book: Notebook, number: int, has: str) -> str:
    cells = await desk.app.notebooks.cells(book)
    start = max(0, len(cells) - 2 * _AROUND if len(cells) - number < _AROUND else number - _AROUND)
    shown = jupyter_texts.brief(cells[start : start + 2 * _AROUND])
    return f"Notebook {has} {jupyter_texts.number_of(len(cells), 'cell')}, showing surrounding cells:\n{shown}"


def _new(source: str, kind: str) -> NewCell:
    return NewCell(source=source, kind=CellKind(kind))


def _edited(cell: Cell, source: str, how: str) -> str:
    difference = jupyter_texts.difference(cell.source, source)
    if not difference:
        return f"Cell {cell.number} {how} successfully - no changes detected"
    return f"Cell {cell.number} {how} successfully!\n\n```diff\n{difference}\n```"
