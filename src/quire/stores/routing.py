"""Sends each call to the store that has a notebook's cells: the database, a document or a temporary store.

A notebook with a document has its row in the database and its cells in the document. A notebook of a Jupyter kernel
without a document is in a temporary store and in no list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quire.core.model import Cell, CellId, Edit, NewCell, Notebook, NotebookId, Output, Principal, Run, RunId
from quire.core.ports.store import Blobs, NotebookStore, RunStore
from quire.stores.document_cells import DocumentCells
from quire.stores.document_runs import DocumentRuns
from quire.stores.documents import JupyterDocuments

if TYPE_CHECKING:
    from quire.stores.sql import SqlStore


class RoutingStore:
    def __init__(
        self,
        database: SqlStore,
        documents: JupyterDocuments,
        blobs: Blobs,
        open_temporary: Callable[[], SqlStore],
        *,
        trust_outputs: bool,
    ) -> None:
        """`open_temporary` is called when the first notebook without a document is created."""
        cells = DocumentCells(documents, blobs, trust_outputs=trust_outputs)
        self._router = _Router(database, documents, cells, DocumentRuns(documents, cells, blobs), open_temporary)
        self.notebooks = RoutingNotebooks(self._router)
        self.runs = RoutingRuns(self._router)

    async def close(self) -> None:
        try:
            await self.notebooks.save_renamed_documents()
        finally:
            await self._router.close()


class _Router:
    """Knows which store has the cells and runs of a notebook."""

    def __init__(
        self,
        database: SqlStore,
        documents: JupyterDocuments,
        document_cells: DocumentCells,
        document_runs: DocumentRuns,
        open_temporary: Callable[[], SqlStore],
    ) -> None:
        self.database = database
        self.documents = documents
        self._document_cells = document_cells
        self._document_runs = document_runs
        self._open_temporary = open_temporary
        self._temporary: SqlStore | None = None
        self._temporary_notebooks: set[NotebookId] = set()

    def cells_of(self, notebook: NotebookId) -> NotebookStore | DocumentCells:
        return self._document_cells if notebook in self.documents else self._store_of(notebook).notebooks

    def runs_of(self, notebook: NotebookId) -> RunStore | DocumentRuns:
        return self._document_runs if notebook in self.documents else self._store_of(notebook).runs

    def _store_of(self, notebook: NotebookId) -> SqlStore:
        if self._temporary is not None and notebook in self._temporary_notebooks:
            return self._temporary
        return self.database

    async def create_temporary(self, notebook: Notebook) -> Notebook:
        if self._temporary is None:
            self._temporary = self._open_temporary()
        created = await self._temporary.notebooks.create_notebook(notebook)
        self._temporary_notebooks.add(created.id)
        return created

    async def find_temporary(self, owner: Principal, name: str) -> Notebook | None:
        return None if self._temporary is None else await self._temporary.notebooks.find_notebook(owner, name)

    async def delete_temporary(self, notebook: NotebookId) -> None:
        if self._temporary is not None and notebook in self._temporary_notebooks:
            self._temporary_notebooks.remove(notebook)
            await self._temporary.notebooks.delete_notebook(notebook)

    async def close(self) -> None:
        if self._temporary is not None:
            await self._temporary.close()
        await self.database.close()


class RoutingNotebooks:
    def __init__(self, router: _Router) -> None:
        self._router = router
        self._database = router.database.notebooks
        self._documents = router.documents

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        if notebook.document is not None and not notebook.document.path:
            return await self._router.create_temporary(notebook)
        return await self._refreshed(await self._database.create_notebook(notebook, limit=limit))

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None:
        found = await self._database.find_notebook(owner, name)
        if found is not None:
            return await self._refreshed(found)
        return await self._router.find_temporary(owner, name)

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        found = await self._database.list_notebooks(owner)
        return [await self._save_location(notebook, self._documents.describe(notebook)) for notebook in found]

    async def list_mirrored(self) -> list[Notebook]:
        return [self._documents.describe(notebook) for notebook in await self._database.list_mirrored()]

    async def _refreshed(self, notebook: Notebook) -> Notebook:
        if notebook.document is None:
            return notebook
        return await self._save_location(notebook, await self._documents.refresh(notebook))

    async def _save_location(self, saved: Notebook, now: Notebook) -> Notebook:
        """Save the location of its document if a person renamed it."""
        if now.document != saved.document:
            await self._database.update_notebook(replace(saved, document=now.document))
        return now

    async def save_renamed_documents(self) -> None:
        for renamed in self._documents.list_renamed():
            saved = await self._database.find_notebook(renamed.owner, renamed.name)
            if saved is not None and saved.id == renamed.id:
                await self._save_location(saved, renamed)

    async def update_notebook(self, notebook: Notebook) -> None:
        await self._database.update_notebook(notebook)

    async def clear_notebook(self, notebook: NotebookId) -> None:
        await self._router.cells_of(notebook).clear_notebook(notebook)

    async def delete_notebook(self, notebook: NotebookId) -> None:
        await self._documents.forget(notebook)
        await self._router.delete_temporary(notebook)
        await self._database.delete_notebook(notebook)

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        return await self._router.cells_of(notebook).add_cells(notebook, cells, at=at, limit=limit)

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        return await self._router.cells_of(notebook).find_cell(notebook, which)

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        return await self._router.cells_of(notebook).list_cells(notebook, start, limit)

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        return await self._router.cells_of(notebook).edit_cell(notebook, cell, edit, expected)

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        return await self._router.cells_of(notebook).move_cell(notebook, cell, to)

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        await self._router.cells_of(notebook).delete_cell(notebook, cell)


class RoutingRuns:
    def __init__(self, router: _Router) -> None:
        self._router = router

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        return await self._router.runs_of(notebook).begin_run(notebook, cell, run, limit=limit)

    async def save_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        await self._router.runs_of(notebook).save_outputs(notebook, run, outputs, dropped)

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        await self._router.runs_of(notebook).finish_run(notebook, run)

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        await self._router.runs_of(notebook).clear_outputs(notebook, cell)

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        await self._router.runs_of(notebook).mark_stale(notebook, marks)

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        return await self._router.runs_of(notebook).find_run(notebook, run)

    async def list_run_summaries(self, notebook: NotebookId) -> list[Run]:
        return await self._router.runs_of(notebook).list_run_summaries(notebook)

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        return await self._router.runs_of(notebook).list_runs(notebook)

    async def find_runs_by_display_id(self, notebook: NotebookId, display_id: str) -> list[Run]:
        return await self._router.runs_of(notebook).find_runs_by_display_id(notebook, display_id)

    async def mark_interrupted_runs(self) -> int:
        return await self._router.database.runs.mark_interrupted_runs()
