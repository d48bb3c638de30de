"""The cells of a notebook: add, find, edit, move and delete them."""

from __future__ import annotations

import re

from quire.core.errors import InvalidRequest, NotFound
from quire.core.limits.validation import Limits
from quire.core.model import Cell, CellId, CellKind, CellState, Edit, NewCell, Notebook, RunId
from quire.core.notebooks.outputs import Outputs
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.store import NotebookStore, RunStore
from quire.core.runs.active_run import STOP_IT

_NUMBER = re.compile(r"\s*-?\d+\s*")


class Cells:
    def __init__(self, store: NotebookStore, run_store: RunStore, outputs: Outputs, feed: Feed, limits: Limits) -> None:
        self._store = store
        self._run_store = run_store
        self._outputs = outputs
        self._feed = feed
        self._limits = limits

    async def add(self, notebook: Notebook, source: str, kind: CellKind = CellKind.CODE, at: int | None = None) -> Cell:
        self._limits.check_code(source, empty=kind is not CellKind.CODE)
        return (await self.add_all(notebook, [NewCell(source=source, kind=kind)], at))[0]

    async def add_all(self, notebook: Notebook, cells: list[NewCell], at: int | None = None) -> list[Cell]:
        """Add all of the cells or none."""
        stored = await self._outputs.store_cells(cells)
        added = await self._store.add_cells(notebook.id, stored, at=at, limit=self._limits.max_cells)
        self._feed.tell(Change(notebook=notebook))
        return added

    async def get(self, notebook: Notebook, which: str | int) -> Cell:
        """The cell with this id or number. A number may be a string."""
        reference = _reference(which)
        found = await self._store.find_cell(notebook.id, reference)
        if found is None and isinstance(reference, int):  # some documents' ids are digits
            found = await self._store.find_cell(notebook.id, CellId(str(which).strip()))
        if found is None:
            raise NotFound(await self._no_cell(notebook, which))
        return found

    async def find_by_run(self, notebook: Notebook, run: RunId) -> Cell | None:
        """The cell of a run; None if it was deleted since."""
        found = await self._run_store.find_run(notebook.id, run)
        return await self._store.find_cell(notebook.id, found.cell) if found is not None else None

    async def list_cells(self, notebook: Notebook, start: int = 0, limit: int | None = None) -> list[Cell]:
        if start < 0 or (limit is not None and limit < 1):
            raise InvalidRequest("start must be 0 or more and limit 1 or more.")
        return await self._store.list_cells(notebook.id, start, limit)

    async def find_range(self, notebook: Notebook, which: str | int) -> list[Cell] | None:
        """The code cells of "2-5", "3-" or "all" that can run, in order; None if `which` is one cell."""
        found = re.fullmatch(r"all|(\d{1,9})\s*-\s*(\d{1,9})?", which.strip()) if isinstance(which, str) else None
        if found is None or await self._store.find_cell(notebook.id, CellId(str(which).strip())) is not None:
            return None
        start = int(found[1] or 0)
        limit = int(found[2]) + 1 - start if found[2] else None
        if limit is not None and limit < 1:
            raise InvalidRequest(f"{which!r} is an empty range. Give the first and the last cell, as in 2-5.")
        cells = [cell for cell in await self.list_cells(notebook, start, limit) if _can_run(cell)]
        if not cells:
            raise NotFound(f"There is no code to run in cells {which} of notebook {notebook.name!r}.")
        return cells

    async def edit(self, notebook: Notebook, which: str | int, edit: Edit, expected: int | None = None) -> Cell:
        """Edit a cell. Raises VersionConflict if its version is not `expected`."""
        cell = await self.get(notebook, which)
        if edit.source is not None:
            self._limits.check_code(edit.source, empty=(edit.kind or cell.kind) is not CellKind.CODE)
        if cell.state is CellState.RUNNING and edit.kind not in (None, cell.kind):
            raise InvalidRequest(f"Cell {cell.number} is running, and its kind stays until it has ended. {STOP_IT}")
        edited = await self._store.edit_cell(notebook.id, cell.id, edit, expected)
        self._feed.tell(Change(notebook=notebook, cell=cell.id, number=cell.number))
        return edited

    async def move(self, notebook: Notebook, which: str | int, to: int) -> Cell:
        cell = await self.get(notebook, which)
        moved = await self._store.move_cell(notebook.id, cell.id, to)
        self._feed.tell(Change(notebook=notebook))
        return moved

    async def delete(self, notebook: Notebook, which: str | int) -> Cell:
        cell = await self.get(notebook, which)
        if cell.state is CellState.RUNNING:
            raise InvalidRequest(f"Cell {cell.number} is running, and is not deleted. {STOP_IT}")
        await self._store.delete_cell(notebook.id, cell.id)
        self._feed.tell(Change(notebook=notebook))
        return cell

    async def delete_all(self, notebook: Notebook) -> None:
        await self._store.clear_notebook(notebook.id)
        self._feed.tell(Change(notebook=notebook))

    async def clear_outputs(self, notebook: Notebook, cell: Cell) -> None:
        await self._run_store.clear_outputs(notebook.id, cell.id)
        self._feed.tell(Change(notebook=notebook, cell=cell.id, number=cell.number))

    async def list_definitions(self, notebook: Notebook) -> tuple[list[str], list[str]]:
        """Import statements and function definitions of all runs, each once, in order."""
        imports: dict[str, None] = {}
        functions: dict[str, None] = {}
        for run in await self._run_store.list_runs(notebook.id):
            imports.update(dict.fromkeys(run.imports))
            functions.update(dict.fromkeys(run.functions))
        return list(imports), list(functions)

    async def _no_cell(self, notebook: Notebook, which: str | int) -> str:
        last = await self._store.list_cells(notebook.id, max(0, notebook.cells - 10), None)
        if not last:
            return f"No cell {which!r}: notebook {notebook.name!r} has no cells yet. add_cell makes one."
        some = ", ".join(f"{cell.number} ({cell.id})" for cell in last)
        more = f" {last[0].number} more before them; list_cells shows all." if last[0].number else ""
        numbers = f"Numbers go from 0 to {last[-1].number}." if len(last) > 1 or more else "The only number is 0."
        message = f"No cell {which!r} in notebook {notebook.name!r}. Its last cells: {some}.{more} {numbers}"
        if isinstance(_reference(which), int) or _NUMBER.fullmatch(str(which)):
            return message
        return f'{message} execute_cell alone takes several: "2-5", "3-" or "all".'


def _can_run(cell: Cell) -> bool:
    """Whether it is code without the tag that nbclient skips."""
    tags = cell.metadata.get("tags")
    is_skipped = isinstance(tags, list) and "skip-execution" in tags
    return cell.kind is CellKind.CODE and bool(cell.source.strip()) and not is_skipped


def _reference(which: str | int) -> CellId | int:
    if isinstance(which, int):
        return which
    text = which.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else CellId(text)
