"""Notebooks as documents: what one holds, for a file; what a file brings, into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread

from quire.core.errors import NotFound, QuireError
from quire.core.model import Cell, NewCell, Notebook
from quire.core.notebooks.editing import Notebooks
from quire.core.notebooks.outputs import keep, keep_bundle
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.store import Blobs, Store

_AT_ONCE = 8  # cells whose bytes are put away


class Documents:
    def __init__(
        self, store: Store, blobs: Blobs, notebooks: Notebooks, feed: Feed, live: Callable[[Notebook, Cell], Cell]
    ) -> None:
        """`live` is the cell as it is this moment, with the output of a run under way."""
        self._store = store
        self._blobs = blobs
        self._notebooks = notebooks
        self._feed = feed
        self._live = live
        self._updating = anyio.Lock()

    async def contents(self, notebook: Notebook) -> tuple[Notebook, list[Cell]]:
        """The notebook as it is now and its cells with all their bytes."""
        fresh = await self.fresh(notebook)
        cells = await self._notebooks.cells(fresh)
        return fresh, [await self._notebooks.loaded(self._live(fresh, cell)) for cell in cells]

    async def text(self, notebook: Notebook, dumps: Callable[[Notebook, list[Cell]], str]) -> str:
        """The document, made aside: a large one takes its time."""
        return await anyio.to_thread.run_sync(dumps, *await self.contents(notebook))

    async def bring_in(self, notebook: Notebook, cells: list[NewCell], metadata: dict[str, Any]) -> list[Cell]:
        """Append a document's cells, all or none. Its metadata are the notebook's where that has no other."""
        empty = (await self.fresh(notebook)).cells == 0
        added = await self._notebooks.add_cells(notebook, await self._kept(cells))

        def with_metadata(fresh: Notebook) -> Notebook:
            return replace(fresh, metadata={**fresh.metadata, **metadata} if empty else {**metadata, **fresh.metadata})

        if metadata:
            await self.update(notebook, with_metadata)
            self._feed.tell(Change(notebook=notebook))
        return added

    async def _kept(self, cells: list[NewCell]) -> list[NewCell]:
        """The cells with their bytes at rest; several at once, since each waits for the disk."""
        kept = list(cells)
        failures: list[QuireError] = []
        at_once = anyio.Semaphore(_AT_ONCE)

        async def keep_one(place: int) -> None:
            async with at_once:
                try:
                    kept[place] = await self._at_rest(cells[place])
                except QuireError as error:
                    failures.append(error)

        async with anyio.create_task_group() as group:
            for place in range(len(cells)):
                group.start_soon(keep_one, place)
        if failures:
            raise failures[0]
        return kept

    async def _at_rest(self, cell: NewCell) -> NewCell:
        attached = {name: await keep_bundle(self._blobs, each) for name, each in cell.attachments.items()}
        run = cell.run
        if run is not None:
            run = replace(run, outputs=tuple([await keep(self._blobs, output) for output in run.outputs]))
        return replace(cell, attachments=attached, run=run)

    async def update(self, notebook: Notebook, change: Callable[[Notebook], Notebook]) -> Notebook:
        """Keep what `change` makes of the notebook as it is now: its metadata and its mirror."""
        async with self._updating:  # two at once would each undo what the other changed
            changed = change(await self.fresh(notebook))
            await self._store.update_notebook(changed)
        return changed

    async def fresh(self, notebook: Notebook) -> Notebook:
        found = await self._store.find_notebook(notebook.owner, notebook.name)
        if found is None or found.id != notebook.id:
            raise NotFound(f"The notebook {notebook.name!r} is no longer there.")
        return found
