"""Cells in the tool set `jupyter`: read, written and run, by index or by id."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Literal

import anyio.to_thread
from fastmcp.tools import ToolResult
from mcp_types import ContentBlock, TextContent
from pydantic import Field

from quire.core.errors import InvalidRequest, NotFound, VersionConflict
from quire.core.model import Cell, CellId, CellKind, CellState, Edit, NewCell, Notebook, NotebookId
from quire.core.notebooks.access import Access
from quire.core.notebooks.current import Client
from quire.core.phrases import suggestion
from quire.core.runs.model_text import escape_control_characters
from quire.frontends.mcp import default_document
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry
from quire.frontends.mcp.toolsets import jupyter_texts

From0 = Annotated[int, Field(ge=0)]
_SHOWN = 100_000  # cells of clients of which it is remembered what these know
_AROUND = 5  # cells before one that is shown with its neighbours
OTHER_NAMES = {"timeout_seconds": "timeout"}  # of parameters, as older clients call them


class Books:
    """Which notebook and which cell a call means."""

    def __init__(self) -> None:
        self._shown: OrderedDict[tuple[Client, NotebookId, CellId], int] = OrderedDict()  # hashes of sources

    def shown(self, ctx: ToolContext, book: Notebook, *cells: Cell) -> None:
        """The client knows their sources now."""
        for cell in cells:
            key = (ctx.client, book.id, cell.id)
            self._shown[key] = hash(cell.source)
            self._shown.move_to_end(key)
        while len(self._shown) > _SHOWN:
            self._shown.popitem(last=False)

    def knows(self, ctx: ToolContext, book: Notebook, cell: Cell) -> bool:
        """Whether the client knows its source as it is, or was never shown any."""
        here = hash(cell.source)
        return self._shown.get((ctx.client, book.id, cell.id), here) == here

    async def overwrite(self, ctx: ToolContext, book: Notebook, cell: Cell, source: str) -> None:
        """Raises VersionConflict if the cell has changed since the client read it."""
        if not self.knows(ctx, book, cell):
            self.shown(ctx, book, cell)
            raise VersionConflict(
                f"Cell {cell.number} was edited since it was shown. Nothing was changed; call again to overwrite it "
                f"all the same. Its source now:\n{escape_control_characters(cell.source)}"
            )
        try:
            edited = await ctx.app.cells.edit(book, cell.id, Edit(source=source), cell.version)
        except VersionConflict:
            self.shown(ctx, book, await ctx.app.cells.get(book, cell.id))  # the refusal says it
            raise
        self.shown(ctx, book, edited)

    async def named(self, ctx: ToolContext, name: str | None, needed: Access = Access.WRITE) -> Notebook:
        """The named one, or the client's current one."""
        if name is None and not ctx.app.current.has_chosen(ctx.client):
            if not ctx.app.jupyter.document:
                raise InvalidRequest("No active notebook. Use the use_notebook tool to activate a notebook first.")
            name = (await default_document.open_for(ctx.app, ctx.client)).name
        try:
            return await ctx.notebook(name, needed)
        except NotFound:
            raise NotFound(await self.not_there(ctx, name or "")) from None

    async def not_there(self, ctx: ToolContext, name: str) -> str:
        names = [book.title for book, _ in await ctx.app.sharing.list_accessible(ctx.client)]
        near = await anyio.to_thread.run_sync(suggestion, name, names)  # there may be thousands
        return (
            f"Notebook '{name}' is not connected. All currently connected notebooks: {names}.{near} use_notebook with "
            "a notebook_path connects one."
        )

    async def cell(
        self,
        ctx: ToolContext,
        book: Notebook,
        index: int | None,
        id_: str | None,
        given: str = "cell_index or cell_id",
    ) -> Cell:
        """By its id where one is given."""
        if index is None and id_ is None:
            raise InvalidRequest(f"Which cell? Pass {given}.")
        try:
            return await ctx.cell(book, index if id_ is None else id_)  # type: ignore[arg-type]  # one is given
        except NotFound:
            if id_ is not None:
                raise
            total = jupyter_texts.number_of(len(await ctx.app.cells.list_cells(book)), "cell")
            raise NotFound(f"Cell index {index} is out of range. Notebook has {total}.") from None


def register(registry: ToolRegistry, books: Books) -> None:
    _reading(registry, books)
    _writing(registry, books)
    _editing(registry, books)
    _running(registry, books)


def said(text: str) -> ToolResult:
    return ToolResult(content=text)


def _reading(registry: ToolRegistry, books: Books) -> None:
    async def read_notebook(
        ctx: ToolContext,
        notebook_name: str,
        response_format: Literal["brief", "detailed"] = "brief",
        start_index: From0 = 0,
        limit: From0 = 20,
    ) -> ToolResult:
        """A notebook's cells: brief as a table with first lines, detailed with their sources. limit=0 shows all."""
        book = await books.named(ctx, notebook_name, Access.READ)
        cells = await ctx.app.cells.list_cells(book)
        total = jupyter_texts.number_of(len(cells), "cell")
        if start_index >= len(cells) and cells:
            raise NotFound(f"Start index {start_index} is out of range. Notebook has {total}.")
        shown = cells[start_index : start_index + limit if limit else None]
        most = max(500, 2 * ctx.result_chars // max(1, len(shown)))
        if response_format == "detailed":
            books.shown(ctx, book, *shown)
        text = jupyter_texts.brief(shown) if response_format == "brief" else jupyter_texts.detailed(shown, most)
        return said(f"Notebook {notebook_name} has {total}.\n\n{text}")

    async def read_cell(
        ctx: ToolContext,
        cell_index: From0 | None = None,
        include_outputs: bool = True,
        notebook_name: str | None = None,
        cell_id: str | None = None,
    ) -> ToolResult:
        """One cell: its source, and what it shows."""
        book = await books.named(ctx, notebook_name, Access.READ)
        cell = await books.cell(ctx, book, cell_index, cell_id)
        books.shown(ctx, book, cell)
        lines = (
            jupyter_texts.head(cell),
            jupyter_texts.clipped(escape_control_characters(cell.source), 2 * ctx.result_chars),
        )
        content: list[ContentBlock] = [_text(line) for line in lines]
        if cell.kind is CellKind.CODE and include_outputs:
            content += await ctx.render.outputs(book, cell)
        return ToolResult(content=content)

    registry.add(read_notebook, "Read notebook", None, read_only=True)
    registry.add(read_cell, "Read cell", None, read_only=True)


def _writing(registry: ToolRegistry, books: Books) -> None:
    async def insert_cell(
        ctx: ToolContext,
        cell_index: Annotated[int, Field(ge=-1)],
        cell_type: Literal["code", "markdown", "raw"],
        cell_source: str,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Insert a cell before cell_index (0-based; -1 appends). It is not run."""
        book = await books.named(ctx, notebook_name)
        at = await _place(ctx, book, cell_index)
        made = await ctx.app.cells.add_all(book, [_new(cell_source, cell_type)], at)
        books.shown(ctx, book, *made)
        first = f"Cell inserted successfully at index {made[0].number} ({cell_type})!"
        return said(f"{first}\n{await _around(ctx, book, made[0].number, 'now has')}")

    async def delete_cell(
        ctx: ToolContext,
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
        cells = [await books.cell(ctx, book, *each) for each in which or [(index, None) for index in indices]]
        if not cells:
            raise InvalidRequest("Which cells? Pass cell_indices or cell_ids_to_delete.")
        if len({cell.id for cell in cells}) < len(cells):
            raise InvalidRequest(f"A cell is named twice: {cell_ids_to_delete or indices}. Nothing was deleted.")
        lines = []
        for cell in cells:
            await ctx.app.cells.delete(book, cell.id)
            lines.append(f"Cell {cell.number} ({cell.kind.value}) deleted successfully.")
            if include_source:
                lines += [f"deleted cell source:\n{escape_control_characters(cell.source)}", "\n---\n"]
        return said("\n".join(lines))

    async def move_cell(
        ctx: ToolContext,
        source_index: From0 | None = None,
        target_index: From0 | None = None,
        notebook_name: str | None = None,
        source_cell_id: str | None = None,
        target_cell_id: str | None = None,
    ) -> ToolResult:
        """Move a cell to where another one is."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(ctx, book, source_index, source_cell_id, "source_index or source_cell_id")
        target = (await books.cell(ctx, book, target_index, target_cell_id, "target_index or target_cell_id")).number
        moved = await ctx.app.cells.move(book, cell.id, target)
        first = f"Cell moved successfully from index {cell.number} to {moved.number} ({cell.kind.value})."
        return said(f"{first}\n{await _around(ctx, book, moved.number, 'has')}")

    registry.add(insert_cell, "Insert cell", None)
    registry.add(delete_cell, "Delete cell", None, destructive=True)
    registry.add(move_cell, "Move cell", None)


def _editing(registry: ToolRegistry, books: Books) -> None:
    async def overwrite_cell_source(
        ctx: ToolContext,
        cell_source: str,
        cell_index: From0 | None = None,
        notebook_name: str | None = None,
        cell_id: str | None = None,
    ) -> ToolResult:
        """Give a cell another source; it is not run. The answer is the difference."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(ctx, book, cell_index, cell_id)
        await books.overwrite(ctx, book, cell, cell_source)
        return said(_edited(cell, cell_source, "overwritten"))

    async def edit_cell_source(
        ctx: ToolContext,
        old_string: str,
        new_string: str,
        cell_index: From0 | None = None,
        replace_all: bool = False,
        notebook_name: str | None = None,
        cell_id: str | None = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a cell's source, or with replace_all every time."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(ctx, book, cell_index, cell_id)
        times = cell.source.count(old_string) if old_string else 0
        if not times:
            why = "old_string not found in cell source" if old_string else "old_string must not be empty"
            raise InvalidRequest(f"{why}. Nothing was changed. read_cell shows the source.")
        if times > 1 and not replace_all:
            found = f"old_string is not unique: it was not found once in the cell's source but {times} times."
            raise InvalidRequest(f"{found} Nothing was changed. Pass more of it, or replace_all.")
        source = cell.source.replace(old_string, new_string)
        edited = await ctx.app.cells.edit(book, cell.id, Edit(source=source), cell.version)
        if books.knows(ctx, book, cell):
            books.shown(ctx, book, edited)
        return said(_edited(cell, source, "edited"))

    async def clear_cell_output(
        ctx: ToolContext, cell_index: From0 | None = None, notebook_name: str | None = None, cell_id: str | None = None
    ) -> ToolResult:
        """Remove what a code cell shows, and its count."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(ctx, book, cell_index, cell_id)
        if cell.kind is not CellKind.CODE:
            raise InvalidRequest(f"Cell {cell.number} is not a code cell, cannot clear output.")
        if cell.state is CellState.RUNNING:
            raise InvalidRequest(f"Cell {cell.number} is running. Let it end, then clear it.")
        if cell.run is None or not cell.outputs:
            return said(f"Cell {cell.number} had no output to clear.")
        await ctx.app.cells.clear_outputs(book, cell)
        removed = f"({len(cell.outputs)} output(s) removed)"
        return said(f"Cell {cell.number} output cleared successfully {removed}.")

    registry.add(overwrite_cell_source, "Overwrite cell source", None, destructive=True, idempotent=True)
    registry.add(edit_cell_source, "Edit cell source", None, destructive=True)
    registry.add(clear_cell_output, "Clear cell output", None, destructive=True, idempotent=True)


def _running(registry: ToolRegistry, books: Books) -> None:
    async def execute_cell(
        ctx: ToolContext,
        cell_index: From0 | None = None,
        timeout: From0 = 0,
        stream: bool = True,
        progress_interval: int = 5,
        cell_id: str | None = None,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Run a cell. timeout is in seconds; 0 is the default."""
        book = await books.named(ctx, notebook_name)
        cell = await books.cell(ctx, book, cell_index, cell_id)
        return await run(ctx, book, cell, timeout, stream=stream)

    async def insert_execute_code_cell(
        ctx: ToolContext,
        cell_index: Annotated[int, Field(ge=-1)],
        cell_source: str,
        timeout: From0 = 0,
        stream: bool = True,
        progress_interval: int = 5,
        notebook_name: str | None = None,
    ) -> ToolResult:
        """Insert a code cell before cell_index (0-based; -1 appends) and run it."""
        book = await books.named(ctx, notebook_name)
        at = await _place(ctx, book, cell_index)
        return await run(ctx, book, cell_source, timeout, at=at, stream=stream, ran=books.shown)

    registry.add(execute_cell, "Execute cell", None, open_world=True, other_names=OTHER_NAMES)
    registry.add(
        insert_execute_code_cell, "Insert and execute code cell", None, open_world=True, other_names=OTHER_NAMES
    )


async def run(
    ctx: ToolContext,
    book: Notebook,
    code: str | Cell,
    timeout: float,
    *,
    at: int | None = None,
    stream: bool,
    notice: str = "",
    ran: Callable[[ToolContext, Notebook, Cell], None] = lambda _ctx, _book, _cell: None,
) -> ToolResult:
    """Run it. A timeout comes first, then an item for each output, then how it ended where that is not plain. `ran` is
    told which cell it was; `notice` is said beside what the run itself has to say."""
    cell, said_of_run = await ctx.run(book, code, at=at, timeout=timeout or None)
    notice = " ".join(filter(None, (notice, said_of_run)))
    ran(ctx, book, cell)
    content = await ctx.render.outputs(book, cell)
    lines = [f"[INFO] {notice}"] if notice else []
    seconds = cell.run.seconds if cell.run is not None and cell.run.seconds is not None else 0.0
    match cell.state:
        case CellState.TIMEOUT:
            limit = timeout or ctx.app.limits.cell_timeout
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


async def _place(ctx: ToolContext, book: Notebook, index: int) -> int | None:
    """Where a cell is to be inserted; None appends."""
    total = len(await ctx.app.cells.list_cells(book))
    if index > total:
        raise InvalidRequest(f"Index {index} is outside valid range [-1, {total}]. Use -1 to append at end.")
    return None if index == -1 else index


async def _around(ctx: ToolContext, book: Notebook, number: int, has: str) -> str:
    cells = await ctx.app.cells.list_cells(book)
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
