"""Editing: notebooks and their cells, for whoever owns them."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import anyio
import anyio.to_thread

from quire.core.errors import InvalidRequest, NotFound
from quire.core.limits.validation import Limits, check_name, check_policy
from quire.core.model import (
    Blob,
    Cell,
    CellId,
    CellKind,
    CellState,
    Data,
    DocumentLocation,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    Policy,
    Principal,
    RunId,
)
from quire.core.notebooks.images import FORMATS, PREVIEW, Image
from quire.core.notebooks.outputs import keep, keep_bundle
from quire.core.ops.change_bus import Change, Feed
from quire.core.phrases import count, existing
from quire.core.ports.jupyter import RUNTIME
from quire.core.ports.store import Blobs, Store
from quire.core.runs.active_run import STOP_IT

Placing = Callable[[str, str], Awaitable[DocumentLocation]]

_NUMBER = re.compile(r"\s*-?\d+\s*")
MAIN = "main"
"""The notebook a caller gets who named none."""


class Notebooks:
    def __init__(
        self, store: Store, blobs: Blobs, feed: Feed, limits: Limits, runtimes: list[str], place: Placing | None = None
    ) -> None:
        """The first of `runtimes` is the one of notebooks that name none. `place` finds or makes the document of one
        that is to have it on a Jupyter server, given the server's name and the path."""
        self._store = store
        self._blobs = blobs
        self._feed = feed
        self._limits = limits
        self._runtimes = runtimes
        self._place = place
        self._naming = anyio.Lock()

    async def create(
        self,
        who: Principal,
        name: str | None = None,
        runtime: str | None = None,
        policy: Policy | None = None,
        document: DocumentLocation | None = None,
    ) -> Notebook:
        if name is None:
            async with self._naming:  # two callers at once must not choose the same free name
                return await self.create(who, await self._free_name(who), runtime, policy, document)
        runtime = self._runtimes[0] if runtime is None else runtime
        if runtime not in self._runtimes:
            raise InvalidRequest(f"There is no runtime {runtime!r}; there is {', '.join(self._runtimes)}.")
        name = check_name(name)
        policy = check_policy(policy or Policy(), self._limits, runtime)
        if runtime == RUNTIME and document is None and self._place is not None:
            await self._refuse_taken(who, name)
            document = await self._place("", f"{name}.ipynb")
        notebook = Notebook(
            id=NotebookId(uuid4().hex),
            name=name,
            owner=who,
            runtime=runtime,
            created_at=time.time(),
            policy=policy,
            document=document,
        )
        return await self.keep(notebook)

    async def _refuse_taken(self, who: Principal, name: str) -> None:
        if await self._store.find_notebook(who, name) is not None:  # before there is a document for it
            raise InvalidRequest(f"There is a notebook called {name!r} already. Use it, or choose another name.")

    async def keep(self, notebook: Notebook) -> Notebook:
        """Keep a new one. Raises OverLimit where its owner has as many as may be."""
        return await self._store.create_notebook(notebook, limit=self._limits.max_notebooks)

    async def named(self, who: Principal, name: str) -> Notebook:
        found = await self._store.find_notebook(who, check_name(name, new=False))
        if found is None:
            raise await no_such_notebook(name, [each.name for each in await self._store.list_notebooks(who)])
        return found

    async def find(self, owner: Principal, name: str) -> Notebook | None:
        return await self._store.find_notebook(owner, check_name(name))

    async def get_or_create(self, who: Principal, name: str) -> Notebook:
        found = await self._store.find_notebook(who, check_name(name, new=False))
        if found is not None:
            return found
        try:
            return await self.create(who, name)
        except InvalidRequest:  # somebody else made it this moment
            return await self.named(who, name)

    async def of(self, who: Principal) -> list[Notebook]:
        return await self._store.list_notebooks(who)

    async def add_cell(
        self, notebook: Notebook, source: str, kind: CellKind = CellKind.CODE, at: int | None = None
    ) -> Cell:
        self._limits.check_code(source, empty=kind is not CellKind.CODE)
        return (await self.add_cells(notebook, [NewCell(source=source, kind=kind)], at))[0]

    async def add_cells(self, notebook: Notebook, cells: list[NewCell], at: int | None = None) -> list[Cell]:
        kept = [await self._kept(cell) for cell in cells]
        added = await self._store.add_cells(notebook.id, kept, at=at, limit=self._limits.max_cells)
        self._feed.tell(Change(notebook=notebook))
        return added

    async def _kept(self, cell: NewCell) -> NewCell:
        if cell.attachments:
            kept = {name: await keep_bundle(self._blobs, bundle) for name, bundle in cell.attachments.items()}
            cell = replace(cell, attachments=kept)
        if cell.run is None:
            return cell
        outputs = tuple([await keep(self._blobs, output) for output in cell.run.outputs])
        return replace(cell, run=replace(cell.run, outputs=outputs))

    async def cell(self, notebook: Notebook, which: str | int) -> Cell:
        """By id or by number; a number may come as text."""
        reference = _reference(which)
        found = await self._store.find_cell(notebook.id, reference)
        if found is None and isinstance(reference, int):  # some documents' ids are digits
            found = await self._store.find_cell(notebook.id, CellId(str(which).strip()))
        if found is None:
            raise NotFound(await self._no_cell(notebook, which))
        return found

    async def cell_of(self, notebook: Notebook, run: RunId) -> Cell | None:
        """The cell a run was of; None where it was deleted since."""
        found = await self._store.find_run(notebook.id, run)
        return await self._store.find_cell(notebook.id, found.cell) if found is not None else None

    async def cells(self, notebook: Notebook, start: int = 0, limit: int | None = None) -> list[Cell]:
        if start < 0 or (limit is not None and limit < 1):
            raise InvalidRequest("start must be 0 or more and limit 1 or more.")
        return await self._store.list_cells(notebook.id, start, limit)

    async def span(self, notebook: Notebook, which: str | int) -> list[Cell] | None:
        """The code cells of "2-5", "3-" or "all" that can run, in order; None where `which` is one cell."""
        found = re.fullmatch(r"all|(\d{1,9})\s*-\s*(\d{1,9})?", which.strip()) if isinstance(which, str) else None
        if found is None or await self._store.find_cell(notebook.id, CellId(str(which).strip())) is not None:
            return None
        start = int(found[1] or 0)
        limit = int(found[2]) + 1 - start if found[2] else None
        if limit is not None and limit < 1:
            raise InvalidRequest(f"{which!r} names no cells: say the first and the last one, as in 2-5.")
        cells = [cell for cell in await self.cells(notebook, start, limit) if _runs(cell)]
        if not cells:
            raise NotFound(f"There is no code to run in cells {which} of notebook {notebook.name!r}.")
        return cells

    async def edit_cell(self, notebook: Notebook, which: str | int, edit: Edit, expected: int | None = None) -> Cell:
        cell = await self.cell(notebook, which)
        if edit.source is not None:
            self._limits.check_code(edit.source, empty=(edit.kind or cell.kind) is not CellKind.CODE)
        if cell.state is CellState.RUNNING and edit.kind not in (None, cell.kind):
            raise InvalidRequest(f"Cell {cell.number} is running, and its kind stays until it has ended. {STOP_IT}")
        edited = await self._store.edit_cell(notebook.id, cell.id, edit, expected)
        self._feed.tell(Change(notebook=notebook, cell=cell.id, number=cell.number))
        return edited

    async def move_cell(self, notebook: Notebook, which: str | int, to: int) -> Cell:
        cell = await self.cell(notebook, which)
        moved = await self._store.move_cell(notebook.id, cell.id, to)
        self._feed.tell(Change(notebook=notebook))
        return moved

    async def delete_cell(self, notebook: Notebook, which: str | int) -> Cell:
        cell = await self.cell(notebook, which)
        if cell.state is CellState.RUNNING:
            raise InvalidRequest(f"Cell {cell.number} is running, and is not deleted. {STOP_IT}")
        await self._store.delete_cell(notebook.id, cell.id)
        self._feed.tell(Change(notebook=notebook))
        return cell

    async def clear_outputs(self, notebook: Notebook, cell: Cell) -> None:
        await self._store.clear_outputs(notebook.id, cell.id)
        self._feed.tell(Change(notebook=notebook, cell=cell.id, number=cell.number))

    async def clear(self, notebook: Notebook) -> None:
        await self._store.clear_notebook(notebook.id)
        self._feed.tell(Change(notebook=notebook))

    async def forget(self, notebook: Notebook) -> None:
        """Keep nothing of it; a document on a Jupyter server stays there."""
        await self._store.delete_notebook(notebook.id)
        self._feed.tell(Change(notebook=notebook))

    async def image(self, cell: Cell, index: int) -> Image:
        """The index-th picture of a cell, in the order it was shown."""
        pictures = [found for output in cell.outputs if (found := picture(output))]
        if not 0 <= index < len(pictures):
            last = len(pictures) - 1
            numbers = f", number{'s' * (last > 0)} 0{f' to {last}' * (last > 0)}" if pictures else ""
            there = f"{count(len(pictures), 'image')}{numbers}" if pictures else "no images"
            raise NotFound(f"Cell {cell.number} has {there}; there is no image {index}.")
        mime, data, source = pictures[index]
        return Image.from_bytes(await self.bytes_of(data), mime, source)

    async def bytes_of(self, data: Data) -> bytes:
        match data:
            case Blob():
                return await self._blobs.get(data)
            case str():
                return data.encode("utf-8")
            case bytes():
                return data

    async def loaded(self, cell: Cell) -> Cell:
        """The cell with the bytes of its outputs and attachments in place of where they are kept."""
        if cell.attachments:
            attached = {name: await self._load_bundle(bundle) for name, bundle in cell.attachments.items()}
            cell = replace(cell, attachments=attached)
        if cell.run is None:
            return cell
        outputs = [replace(output, bundle=await self._load_bundle(output.bundle)) for output in cell.outputs]
        return replace(cell, run=replace(cell.run, outputs=tuple(outputs)))

    async def _load_bundle(self, bundle: dict[str, Data]) -> dict[str, Data]:
        return {mime: await self._load(data) for mime, data in bundle.items()}

    async def _load(self, data: Data) -> Data:
        if not isinstance(data, Blob):
            return data
        whole = await self._blobs.get(data)
        return whole.decode("utf-8") if data.text else whole

    async def text_of(self, data: Data) -> str:
        return data if isinstance(data, str) else (await self.bytes_of(data)).decode("utf-8", "replace")

    async def tracked(self, notebook: Notebook) -> tuple[list[str], list[str]]:
        """Import statements and function definitions of all runs, each once, in order."""
        imports: dict[str, None] = {}
        functions: dict[str, None] = {}
        for run in await self._store.list_runs(notebook.id):
            imports.update(dict.fromkeys(run.imports))
            functions.update(dict.fromkeys(run.functions))
        return list(imports), list(functions)

    async def _free_name(self, who: Principal) -> str:
        taken = {notebook.name for notebook in await self._store.list_notebooks(who)}
        return next(name for n in range(1, len(taken) + 2) if (name := f"notebook-{n}") not in taken)

    async def _no_cell(self, notebook: Notebook, which: str | int) -> str:
        last = await self._store.list_cells(notebook.id, max(0, notebook.cells - 10), None)
        if not last:
            return f"No cell {which!r}: notebook {notebook.name!r} has no cells yet. add_cell makes one."
        some = ", ".join(f"{cell.number} ({cell.id})" for cell in last)
        more = f" {last[0].number} more before them; list_cells shows all." if last[0].number else ""
        numbers = f"Numbers go from 0 to {last[-1].number}." if len(last) > 1 or more else "The only number is 0."
        said = f"No cell {which!r} in notebook {notebook.name!r}. Its last cells: {some}.{more} {numbers}"
        if isinstance(_reference(which), int) or _NUMBER.fullmatch(str(which)):
            return said
        return f'{said} execute_cell alone takes several: "2-5", "3-" or "all".'


async def no_such_notebook(name: str, names: list[str]) -> NotFound:
    """The error for a name that none of these notebooks has."""
    there = await anyio.to_thread.run_sync(existing, name, names)  # there may be thousands
    return NotFound(
        f"No notebook is called {name!r}. {there}",
        agent="create_notebook makes one.",
        person="`quire list` shows them." if names else "`quire exec CODE --notebook NAME` makes one.",
    )


def picture(output: Output) -> tuple[str, Data, str | None] | None:
    """The MIME type, bytes and source of an output's picture, where it has one."""
    for mime in FORMATS:
        if mime in output.bundle:
            source = output.about.get("source")
            return mime, output.bundle[mime], source if isinstance(source, str) else "display"
    if PREVIEW in output.bundle:
        return "image/png", output.bundle[PREVIEW], "preview"
    return None


def _runs(cell: Cell) -> bool:
    """Whether it is code, and not tagged to be left out, as nbclient has it."""
    tags = cell.metadata.get("tags")
    skipped = isinstance(tags, list) and "skip-execution" in tags
    return cell.kind is CellKind.CODE and bool(cell.source.strip()) and not skipped


def _reference(which: str | int) -> CellId | int:
    if isinstance(which, int):
        return which
    text = which.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else CellId(text)
