"""Where a notebook's cells are: in the store, or in a document on a Jupyter server. Each call goes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from quire.core.model import Cell, CellId, Edit, NewCell, Notebook, NotebookId, Output, Principal, Run, RunId
from quire.core.ports.store import Store
from quire.stores.documents import DocumentStore


class PlacedStore:
    """A notebook with a document has its row in the store and its cells in the document. A notebook of a Jupyter kernel
    without a document is in a temporary store and in no list."""

    def __init__(self, kept: Store, documents: DocumentStore, open_temporary: Callable[[], Store]) -> None:
        """`open_temporary` is called when the first notebook without a document is created."""
        self._kept = kept
        self._documents = documents
        self._open_temporary = open_temporary
        self._temporary: Store | None = None
        self._without_document: set[NotebookId] = set()  # in the temporary store

    def _of(self, notebook: NotebookId) -> Store | DocumentStore:
        if notebook in self._documents:
            return self._documents
        if self._temporary is not None and notebook in self._without_document:
            return self._temporary
        return self._kept

    # Notebooks

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        if notebook.document is not None and not notebook.document.path:
            if self._temporary is None:
                self._temporary = self._open_temporary()
            made = await self._temporary.create_notebook(notebook)
            self._without_document.add(made.id)
            return made
        return await self._seen(await self._kept.create_notebook(notebook, limit=limit))

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None:
        found = await self._kept.find_notebook(owner, name)
        if found is not None:
            return await self._seen(found)
        return None if self._temporary is None else await self._temporary.find_notebook(owner, name)

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        kept = await self._kept.list_notebooks(owner)
        return [await self._followed(each, self._documents.known(each)) for each in kept]

    async def _seen(self, notebook: Notebook) -> Notebook:
        if notebook.document is None:
            return notebook
        return await self._followed(notebook, await self._documents.seen(notebook))

    async def _followed(self, kept: Notebook, seen: Notebook) -> Notebook:
        """Keep where the document is now, if a person renamed it."""
        if seen.document != kept.document:
            await self._kept.update_notebook(replace(kept, document=seen.document))
        return seen

    async def update_notebook(self, notebook: Notebook) -> None:
        await self._kept.update_notebook(notebook)

    async def list_mirrored(self) -> list[Notebook]:
        return [self._documents.known(each) for each in await self._kept.list_mirrored()]

    async def clear_notebook(self, notebook: NotebookId) -> None:
        await self._of(notebook).clear_notebook(notebook)

    async def delete_notebook(self, notebook: NotebookId) -> None:
        await self._documents.forget(notebook)
        if self._temporary is not None and notebook in self._without_document:
            self._without_document.remove(notebook)
            await self._temporary.delete_notebook(notebook)
        await self._kept.delete_notebook(notebook)

    # Cells

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        return await self._of(notebook).add_cells(notebook, cells, at=at, limit=limit)

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        return await self._of(notebook).find_cell(notebook, which)

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        return await self._of(notebook).list_cells(notebook, start, limit)

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        return await self._of(notebook).edit_cell(notebook, cell, edit, expected)

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        return await self._of(notebook).move_cell(notebook, cell, to)

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        await self._of(notebook).delete_cell(notebook, cell)

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        await self._of(notebook).clear_outputs(notebook, cell)

    # Runs

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        return await self._of(notebook).begin_run(notebook, cell, run, limit=limit)

    async def keep_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        await self._of(notebook).keep_outputs(notebook, run, outputs, dropped)

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        await self._of(notebook).finish_run(notebook, run)

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        await self._of(notebook).mark_stale(notebook, marks)

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        return await self._of(notebook).find_run(notebook, run)

    async def outline(self, notebook: NotebookId) -> list[Run]:
        return await self._of(notebook).outline(notebook)

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        return await self._of(notebook).list_runs(notebook)

    async def find_displayed(self, notebook: NotebookId, display_id: str) -> list[Run]:
        return await self._of(notebook).find_displayed(notebook, display_id)

    async def mark_unfinished(self) -> int:
        return await self._kept.mark_unfinished()

    def hold(self, notebook: NotebookId) -> bool:
        return self._kept.hold(notebook)

    def release(self, notebook: NotebookId) -> None:
        self._kept.release(notebook)

    async def close(self) -> None:
        try:
            for moved in self._documents.moved():
                kept = await self._kept.find_notebook(moved.owner, moved.name)
                if kept is not None and kept.id == moved.id:
                    await self._followed(kept, moved)
        finally:
            if self._temporary is not None:
                await self._temporary.close()
            await self._kept.close()
