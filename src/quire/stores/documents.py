"""Notebooks whose cells are documents on Jupyter servers: read from there, edited there, saved there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.ports import CellChanged, Document, JupyterError, Missing, NbCell, Unreachable
from quire.clients.jupyter.server.registry import ServerRegistry
from quire.core.errors import InvalidRequest, NotFound, OperationFailed, VersionConflict
from quire.core.model import (
    Blob,
    Cell,
    CellId,
    CellState,
    Data,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    OutputType,
    Run,
    RunId,
)
from quire.core.ports.store import Blobs
from quire.notebook_format import ipynb
from quire.stores import wording
from quire.stores.books import Book

_BRIEFLY = 2.0  # seconds in which a server that did not answer is not asked again


class DocumentStore:
    """The part of a Store that concerns cells and runs, for the notebooks it has seen."""

    def __init__(
        self, servers: ServerRegistry, blobs: Blobs, changed: Callable[[Notebook], None], *, trust_outputs: bool
    ) -> None:
        """`trust_outputs` has JupyterLab trust what the cells show that are inserted here."""
        self._servers = servers
        self._blobs = blobs
        self._trust_outputs = trust_outputs
        self._books: dict[NotebookId, Book] = {}
        self._silent: dict[str, tuple[float, Unreachable]] = {}  # servers, until when, and what they said
        self._changed = changed  # by others; returns at once

    def __contains__(self, notebook: NotebookId) -> bool:
        return notebook in self._books

    def known(self, notebook: Notebook) -> Notebook:
        """With what is known of its document without asking."""
        book = self._book(notebook)
        if book is None:
            return notebook
        try:
            document = self._servers.get(book.place.server).open_documents.find(book.place.path)
        except Missing:
            document = None
        if document is None:
            return replace(notebook, cells=book.cells, runs=book.count, document=book.place)
        cells = document.cells()
        book.cells, counts = len(cells), [each.get("execution_count") for each in cells]
        book.count = max((book.count, *(each for each in counts if isinstance(each, int))))
        metadata = {**notebook.metadata, **document.metadata()}
        return replace(notebook, cells=book.cells, runs=book.count, metadata=metadata, document=book.place)

    async def seen(self, notebook: Notebook) -> Notebook:
        """The same, of an open document; where it cannot be opened, whoever wants its cells will hear why."""
        book = self._book(notebook)
        if book is not None:
            with contextlib.suppress(JupyterError):
                await self._document(book)
        return self.known(notebook)

    def _book(self, notebook: Notebook) -> Book | None:
        if notebook.document is None:
            return None
        book = self._books.get(notebook.id)
        if book is None or notebook.document not in (book.place, *book.places):
            book = self._books[notebook.id] = Book(notebook, notebook.document)
        return book

    async def forget(self, notebook: NotebookId) -> None:
        """The document stays where it is."""
        book = self._books.pop(notebook, None)
        if book is not None:
            with contextlib.suppress(Missing):
                await self._servers.get(book.place.server).open_documents.close(book.place.path)

    @asynccontextmanager
    async def _open(self, notebook: NotebookId) -> AsyncIterator[tuple[Book, Document]]:
        """The document, and what its server refuses in the core's words."""
        book = self._books[notebook]
        try:
            yield book, await self._document(book)
        except Missing as error:
            raise NotFound(str(error)) from error
        except Unreachable as error:
            raise OperationFailed(str(error)) from error
        except JupyterError as error:
            raise InvalidRequest(str(error)) from error

    async def _document(self, book: Book) -> Document:
        server = self._servers.get(book.place.server)
        document = server.open_documents.find(book.place.path)
        if document is None:
            until, said = self._silent.get(server.name, (0.0, None))
            if said is not None and time.monotonic() < until:
                raise said
            try:
                document = await server.open_documents.open(book.place.path)
            except Unreachable as error:
                self._silent[server.name] = time.monotonic() + _BRIEFLY, error
                raise
            book.watching = False
        if not book.watching:
            book.watching = True
            document.watch(lambda: self._heard(book, document))
        return document

    def _heard(self, book: Book, document: Document) -> None:
        """Somebody else changed the document, or renamed its file."""
        if document.path != book.place.path:
            book.places.append(book.place)
            book.place = replace(book.place, path=document.path)
            with contextlib.suppress(Missing):
                self._servers.get(book.place.server).open_documents.rename(book.places[-1].path, document.path)
        self._changed(book.notebook)

    def moved(self) -> list[Notebook]:
        """Notebooks whose documents were renamed, with the paths they have now."""
        return [replace(book.notebook, document=book.place) for book in self._books.values() if book.places]

    # Cells

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        async with self._open(notebook) as (book, document):
            for number, given in enumerate(document.cells()):
                if which in (number, given.get("id")):
                    return book.cell(number, given, document.version(given["id"]))
        return None

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        async with self._open(notebook) as (book, document):
            some = list(enumerate(document.cells()))[start : None if limit is None else start + limit]
            return [book.cell(number, given, document.version(given["id"])) for number, given in some]

    async def _found(self, notebook: NotebookId, cell: CellId) -> Cell:
        found = await self.find_cell(notebook, cell)
        if found is None:
            raise NotFound(wording.cell_gone(cell))
        return found

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        async with self._open(notebook) as (book, document):
            there = len(document.cells())
            if there + len(cells) > limit:
                raise wording.too_many_cells(there, limit)
            if at is not None and not 0 <= at <= there:
                raise InvalidRequest(wording.no_such_place(at, there))
            ids = await document.insert(there if at is None else at, [await self._new(cell) for cell in cells])
            self._save_soon(book)
            every = {given["id"]: (number, given) for number, given in enumerate(document.cells())}
            return [book.cell(*every[id_], document.version(id_)) for id_ in ids if id_ in every]

    async def _new(self, cell: NewCell) -> NbCell:
        id_ = cell.id or CellId(uuid4().hex[:12])
        attached = {name: await self._loaded(bundle) for name, bundle in cell.attachments.items()}
        run = cell.run and replace(cell.run, outputs=tuple(await self._whole(cell.run.outputs)))
        made = ipynb.as_cell(wording.added(replace(cell, attachments=attached), id_, 0, run))
        trusted = self._trust_outputs and made["cell_type"] == "code"
        return {**made, "metadata": _with_trust(made["metadata"], trusted)}

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        before = await self._found(notebook, cell)
        wording.check_version(before, expected)
        async with self._open(notebook) as (book, document):
            metadata = None
            if edit.metadata is not None:
                there: dict[str, Any] = next((each["metadata"] for each in document.cells() if each["id"] == cell), {})
                metadata = _with_trust(edit.of(before).metadata, there.get("trusted") is True)
            kind = edit.kind.value if edit.kind is not None else None
            try:
                await document.change(cell, source=edit.source, kind=kind, metadata=metadata, expected=expected)
            except CellChanged as error:
                now, version = str(error.cell.get("source", "")), document.version(cell)
                raise VersionConflict(wording.edited_meanwhile(before.number, version, expected or 0, now)) from error
            self._save_soon(book)
        return await self._found(notebook, cell)

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        async with self._open(notebook) as (book, document):
            last = len(document.cells()) - 1
            if not 0 <= to <= last:
                raise InvalidRequest(wording.no_such_place(to, last))
            await document.move(cell, to)
            self._save_soon(book)
        return await self._found(notebook, cell)

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        async with self._open(notebook) as (book, document):
            await document.delete(cell)
            self._save_soon(book)

    async def clear_notebook(self, notebook: NotebookId) -> None:
        async with self._open(notebook) as (book, document):
            for given in document.cells():
                await document.delete(given["id"])
            book.journal.clear()
            self._save_soon(book)

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        async with self._open(notebook) as (book, document):
            await document.begin_run(cell)
            await document.end_run(cell, None)
            book.last.pop(cell, None)
            self._save_soon(book)

    # Runs

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        if isinstance(cell, NewCell):
            cell = (await self.add_cells(notebook, [cell], at=None, limit=limit))[0]
        there = await self._found(notebook, cell.id)
        async with self._open(notebook) as (book, document):
            book.count += 1
            run = replace(run, cell=cell.id, count=book.count)
            await document.begin_run(cell.id)
            book.put(run)
            book.last[cell.id] = run.id
            book.shown[run.id] = {}
        return replace(there, run=run, behind=False)

    async def keep_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        book = self._books[notebook]
        under_way, found = book.shown.get(run), book.run(run)
        if under_way is None or found is None:
            return
        first = min((*outputs, *([dropped.start] if dropped else [])), default=None)
        under_way.update(outputs)
        for place in dropped:
            under_way.pop(place, None)
        if first is None:
            return
        shown = [under_way[place] for place in sorted(under_way)]
        same = _unchanged(shown, sum(place < first for place in under_way))
        async with self._open(notebook) as (_, document):
            news = ipynb.as_outputs(await self._whole(shown[same:]), found)
            await document.set_outputs(found.cell, news, start=_joined(shown[:same]))

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        book = self._books[notebook]
        under_way = book.shown.pop(run.id, None) is not None
        book.put(run)
        if book.last.get(run.cell) != run.id or (not under_way and not await self._still_shown(book, run)):
            return  # somebody ran the cell again since
        count = run.count if run.state is not CellState.CRASHED else None
        async with self._open(notebook) as (_, document):
            try:
                await document.set_outputs(run.cell, ipynb.as_outputs(await self._whole(run.outputs), run))
                await document.end_run(run.cell, count)
            except Missing:  # the cell was deleted meanwhile
                return
            book.marks[run.cell] = count
            book.count = max(book.count, run.count)
            self._save_soon(book)

    async def _still_shown(self, book: Book, run: Run) -> bool:
        found = await self.find_cell(book.notebook.id, run.cell)
        return found is not None and found.run is not None and found.run.id == run.id

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        book = self._books[notebook]
        for run in [run for run in book.journal if run.id in marks]:
            book.put(replace(run, stale=marks[run.id]))

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        return self._books[notebook].run(run)

    async def outline(self, notebook: NotebookId) -> list[Run]:
        return list(self._books[notebook].journal)

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        return list(self._books[notebook].journal)

    async def find_displayed(self, notebook: NotebookId, display_id: str) -> list[Run]:
        ended = [run for run in self._books[notebook].journal if run.state is not CellState.RUNNING]
        return [run for run in ended if any(each.display_id == display_id for each in run.outputs)]

    def _save_soon(self, book: Book) -> None:
        self._servers.get(book.place.server).open_documents.save_soon(book.place.path)

    async def _whole(self, outputs: Sequence[Output]) -> list[Output]:
        """With their bytes in place of where they are kept."""
        return [replace(each, bundle=await self._loaded(each.bundle)) for each in outputs]

    async def _loaded(self, bundle: dict[str, Data]) -> dict[str, Data]:
        loaded: dict[str, Data] = {}
        for mime, data in bundle.items():
            whole = await self._blobs.get(data) if isinstance(data, Blob) else data
            text = isinstance(data, Blob) and data.text and isinstance(whole, bytes)
            loaded[mime] = whole.decode("utf-8") if text and isinstance(whole, bytes) else whole
        return loaded


def _with_trust(metadata: dict[str, Any], trusted: bool) -> dict[str, Any]:
    """Cell metadata with JupyterLab's mark of trust. A caller cannot set the mark."""
    rest = {key: value for key, value in metadata.items() if key != "trusted"}
    return {**rest, "trusted": True} if trusted else rest


def _unchanged(shown: list[Output], same: int) -> int:
    """How many of these stay as they are: `same`, but for pieces of a stream that goes on after them."""
    while 0 < same < len(shown) and _goes_on(shown[same - 1], shown[same]):
        same -= 1
    return same


def _joined(shown: list[Output]) -> int:
    """How many outputs they are of a document, where pieces of one stream are one."""
    return sum(not place or not _goes_on(shown[place - 1], each) for place, each in enumerate(shown))


def _goes_on(before: Output, after: Output) -> bool:
    return before.type is after.type is OutputType.STREAM and before.name == after.name
