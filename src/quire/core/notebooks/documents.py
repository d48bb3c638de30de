"""Import and export: a notebook's cells with all their bytes, and cells from a document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread

from quire.core.errors import NotFound
from quire.core.model import Cell, NewCell, Notebook
from quire.core.notebooks.cells import Cells
from quire.core.notebooks.outputs import Outputs
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.store import NotebookStore


class Documents:
    def __init__(
        self, store: NotebookStore, cells: Cells, outputs: Outputs, feed: Feed, live: Callable[[Notebook, Cell], Cell]
    ) -> None:
        """`live` returns a cell as it is now, with the output so far if it runs."""
        self._store = store
        self._cells = cells
        self._outputs = outputs
        self._feed = feed
        self._live = live
        self._updating = anyio.Lock()

    async def contents(self, notebook: Notebook) -> tuple[Notebook, list[Cell]]:
        """The notebook as it is now, and its cells with all their bytes."""
        fresh = await self.reload(notebook)
        cells = await self._cells.list_cells(fresh)
        return fresh, [await self._outputs.load(self._live(fresh, cell)) for cell in cells]

    async def export(self, notebook: Notebook, dumps: Callable[[Notebook, list[Cell]], str]) -> str:
        """The notebook as a document. A large one is written in a thread, since it takes its time."""
        return await anyio.to_thread.run_sync(dumps, *await self.contents(notebook))

    async def import_cells(self, notebook: Notebook, cells: list[NewCell], metadata: dict[str, Any]) -> list[Cell]:
        """Append all cells of a document or none. Its metadata is added; the notebook's own comes first."""
        is_empty = (await self.reload(notebook)).cells == 0
        added = await self._cells.add_all(notebook, cells)

        def add_metadata(fresh: Notebook) -> Notebook:
            merged = {**fresh.metadata, **metadata} if is_empty else {**metadata, **fresh.metadata}
            return replace(fresh, metadata=merged)

        if metadata:
            await self.update(notebook, add_metadata)
            self._feed.tell(Change(notebook=notebook))
        return added

    async def update(self, notebook: Notebook, change: Callable[[Notebook], Notebook]) -> Notebook:
        """Store what `change` makes of the notebook as it is now: its metadata and its mirror."""
        async with self._updating:  # two at once would each undo the other's change
            changed = change(await self.reload(notebook))
            await self._store.update_notebook(changed)
        return changed

    async def reload(self, notebook: Notebook) -> Notebook:
        """The notebook as it is in the store. Raises NotFound if it was deleted."""
        found = await self._store.find_notebook(notebook.owner, notebook.name)
        if found is None or found.id != notebook.id:
            raise NotFound(f"The notebook {notebook.name!r} is no longer there.")
        return found
