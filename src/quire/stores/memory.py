"""Notebooks, blobs and capabilities in this process's memory: for tests, and for whoever wants nothing kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from quire.core.access import Access
from quire.core.capability import Capability
from quire.core.errors import NotFound, Refused
from quire.core.model import (
    Blob,
    Cell,
    CellId,
    CellKind,
    CellState,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    Principal,
    Run,
    RunId,
)
from quire.stores import wording


@dataclass
class _Book:
    notebook: Notebook
    cells: list[Cell] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    shown: dict[RunId, dict[int, Output]] = field(default_factory=dict)  # by runs under way, at their places


class MemoryStore:
    def __init__(self) -> None:
        self._books: dict[NotebookId, _Book] = {}

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        if 0 < limit <= len(await self.list_notebooks(notebook.owner)):
            raise wording.too_many_notebooks(limit)
        if await self.find_notebook(notebook.owner, notebook.name):
            raise Refused(wording.name_taken(notebook.name))
        self._books[notebook.id] = _Book(notebook)
        return notebook

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None:
        return next((book for book in await self.list_notebooks(owner) if book.name == name), None)

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        books = (book for book in self._books.values() if book.notebook.owner == owner)
        return [replace(book.notebook, cells=len(book.cells)) for book in books]

    def by_id(self, notebook: NotebookId) -> Notebook | None:
        book = self._books.get(notebook)
        return replace(book.notebook, cells=len(book.cells)) if book is not None else None

    async def update_notebook(self, notebook: Notebook) -> None:
        book = self._books[notebook.id]
        book.notebook = replace(
            book.notebook, metadata=notebook.metadata, mirror=notebook.mirror, document=notebook.document
        )

    async def list_mirrored(self) -> list[Notebook]:
        return [book.notebook for book in self._books.values() if book.notebook.mirror]

    async def clear_notebook(self, notebook: NotebookId) -> None:
        book = self._books[notebook]
        book.cells, book.runs, book.shown = [], [], {}
        book.notebook = replace(book.notebook, runs=0)

    async def delete_notebook(self, notebook: NotebookId) -> None:
        self._books.pop(notebook, None)

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        book = self._books[notebook]
        if len(book.cells) + len(cells) > limit:
            raise wording.too_many_cells(len(book.cells), limit)
        at = len(book.cells) if at is None else at
        if not 0 <= at <= len(book.cells):
            raise Refused(wording.no_such_place(at, len(book.cells)))
        added = []
        if at < len(book.cells) and any(new.kind is CellKind.CODE for new in cells):
            self._fall_behind(book, at)
        taken = {cell.id for cell in book.cells}
        for new in cells:
            id_ = new.id if new.id and new.id not in taken else CellId(uuid4().hex[:12])
            taken.add(id_)
            run = None
            if new.run is not None:
                run = replace(new.run, cell=id_)
                book.runs.append(run)
            added.append(wording.added(new, id_, 0, run))
        book.cells[at:at] = added
        self._number(book)
        return book.cells[at : at + len(added)]

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        cells = self._books[notebook].cells
        if isinstance(which, int):
            return cells[which] if 0 <= which < len(cells) else None
        return next((cell for cell in cells if cell.id == which), None)

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        return self._books[notebook].cells[start : None if limit is None else start + limit]

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        book, number = self._place(notebook, cell)
        old = book.cells[number]
        wording.check_version(old, expected)
        book.cells[number] = edit.of(old)
        if edit.changes(old):
            self._fall_behind(book, number)
        return book.cells[number]

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        book, number = self._place(notebook, cell)
        if not 0 <= to < len(book.cells):
            raise Refused(wording.no_such_place(to, len(book.cells) - 1))
        if book.cells[number].kind is CellKind.CODE and to != number:
            self._fall_behind(book, min(to, number))
        book.cells.insert(to, book.cells.pop(number))
        self._number(book)
        return book.cells[to]

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        book, number = self._place(notebook, cell)
        if book.cells[number].run is not None:
            self._fall_behind(book, number)
        del book.cells[number]
        self._number(book)

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        book, number = self._place(notebook, cell)
        run = book.cells[number].run
        if run is not None:
            await self.finish_run(notebook, replace(run, outputs=()))

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        if isinstance(cell, NewCell):
            cell = (await self.add_cells(notebook, [cell], at=None, limit=limit))[0]
        book, number = self._place(notebook, cell.id)
        book.notebook = replace(book.notebook, runs=book.notebook.runs + 1)
        run = replace(run, cell=cell.id, count=book.notebook.runs)
        book.runs.append(run)
        book.cells[number] = replace(book.cells[number], run=run, behind=False)
        return book.cells[number]

    async def keep_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        book = self._books[notebook]
        if any(each.id == run and each.state is CellState.RUNNING for each in book.runs):
            shown = {**book.shown.get(run, {}), **outputs}
            book.shown[run] = {place: each for place, each in shown.items() if place not in dropped}

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        book = self._books[notebook]
        book.shown.pop(run.id, None)
        book.runs = [run if old.id == run.id else old for old in book.runs]
        book.cells = [
            replace(cell, run=run) if cell.run is not None and cell.run.id == run.id else cell for cell in book.cells
        ]

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        for run in [run for run in self._books[notebook].runs if run.id in marks]:
            await self.finish_run(notebook, replace(run, stale=marks[run.id]))

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        return next((each for each in await self.outline(notebook) if each.id == run), None)

    async def outline(self, notebook: NotebookId) -> list[Run]:
        runs = self._books[notebook].runs
        return [replace(run, source="", value=[], outputs=(), imports=(), functions=()) for run in runs]

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        return list(self._books[notebook].runs)

    async def find_displayed(self, notebook: NotebookId, display_id: str) -> list[Run]:
        runs = self._books[notebook].runs
        return [run for run in runs if any(each.display_id == display_id for each in run.outputs)]

    async def mark_unfinished(self) -> int:
        count = 0
        for id_, book in self._books.items():
            for run in [run for run in book.runs if run.state is CellState.RUNNING]:
                shown = sorted(book.shown.get(run.id, {}).items())
                await self.finish_run(id_, wording.unfinished(run, [output for _, output in shown]))
                count += 1
        return count

    def hold(self, notebook: NotebookId) -> bool:
        return True

    def release(self, notebook: NotebookId) -> None:
        pass

    async def close(self) -> None:
        pass

    def _place(self, notebook: NotebookId, cell: CellId) -> tuple[_Book, int]:
        book = self._books[notebook]
        for number, each in enumerate(book.cells):
            if each.id == cell:
                return book, number
        raise NotFound(wording.cell_gone(cell))

    def _fall_behind(self, book: _Book, start: int) -> None:
        late = [replace(cell, behind=True) if cell.run is not None else cell for cell in book.cells[start:]]
        book.cells[start:] = late

    def _number(self, book: _Book) -> None:
        book.cells = [replace(cell, number=number) for number, cell in enumerate(book.cells)]


class MemoryShares:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kept: dict[tuple[Principal, NotebookId], Access] = {}

    async def put(self, notebook: NotebookId, whom: Principal, access: Access | None) -> None:
        self._kept.pop((whom, notebook), None)
        if access is not None:
            self._kept[whom, notebook] = access

    async def of(self, notebook: NotebookId) -> dict[Principal, Access]:
        return {whom: access for (whom, shared), access in sorted(self._kept.items()) if shared == notebook}

    async def shared_with(self, whom: Principal) -> list[tuple[Notebook, Access]]:
        mine = [(id_, access) for (each, id_), access in self._kept.items() if each == whom]
        found = [(book, access) for id_, access in mine if (book := self._store.by_id(id_)) is not None]
        return sorted(found, key=lambda each: (each[0].created_at, each[0].owner, each[0].name))


class MemoryBlobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, data: bytes) -> Blob:
        digest = hashlib.sha256(data).hexdigest()
        self._kept[digest] = data
        return Blob(digest=digest, size=len(data))

    async def get(self, blob: Blob) -> bytes:
        if blob.digest not in self._kept:
            raise NotFound(wording.blob_gone(blob.digest))
        return self._kept[blob.digest]


class MemoryCapabilities:
    def __init__(self) -> None:
        self._kept: dict[tuple[Principal, str], Capability] = {}

    def stamp(self) -> int:
        return 0

    async def keep(self, capability: Capability) -> None:
        self._kept[capability.owner, capability.name] = capability

    async def renew(self, capability: Capability) -> None:
        kept = self._kept.get((capability.owner, capability.name))
        if kept is not None and kept.installed_at == capability.installed_at:
            self._kept[capability.owner, capability.name] = capability

    async def of(self, owner: Principal) -> list[Capability]:
        kept = [each for each in self._kept.values() if each.owner == owner]
        return sorted(kept, key=lambda each: (each.installed_at, each.name))

    async def drop(self, owner: Principal, name: str) -> None:
        self._kept.pop((owner, name), None)
