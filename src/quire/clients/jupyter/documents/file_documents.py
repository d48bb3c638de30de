"""Notebooks as plain files, for servers without jupyter-collaboration. Each edit reads and writes the file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from quire.clients.jupyter.documents.cells import (
    clamp_index,
    complete_cell,
    complete_cells,
    copy_cell,
    copy_outputs,
    with_kind,
)
from quire.clients.jupyter.documents.contents import Contents, Model, check_notebook
from quire.clients.jupyter.documents.live_document import cell_missing, check_version
from quire.clients.jupyter.documents.versions import SourceVersions
from quire.clients.jupyter.ports import JupyterError, NbCell, NbOutput

T = TypeVar("T")


class FileDocuments:
    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, path: str) -> FileDocument:
        """`path` must be normalized. Raises Missing, and JupyterError if the file is not a notebook."""
        await check_notebook(self._contents, path)
        document = FileDocument(path, self._contents, self._locks.setdefault(path, asyncio.Lock()))
        await document.read()
        return document


class FileDocument:
    """`lock` is shared by all documents of this file. An edit reads the newest file and changes its own cell only,
    found by id. The contents API has no conditional write: a change that others write between our read and our write
    is lost."""

    live = False

    def __init__(self, path: str, contents: Contents, lock: asyncio.Lock) -> None:
        self._path = path
        self._contents = contents
        self._lock = lock
        self._versions = SourceVersions()
        self._content: dict[str, Any] = {"cells": [], "metadata": {}}
        self._modified = ""
        self._watchers: list[Callable[[], None]] = []

    @property
    def path(self) -> str:
        return self._path

    def cells(self) -> list[NbCell]:
        return [copy_cell(cell) for cell in self._content["cells"]]

    def metadata(self) -> dict[str, Any]:
        return dict(self._content["metadata"])

    def version(self, cell: str) -> int:
        return self._versions.get(cell)

    async def insert(self, at: int, cells: Sequence[NbCell]) -> list[str]:
        def change(cells_now: list[NbCell]) -> list[str]:
            completed = complete_cells(cells, [cell["id"] for cell in cells_now])
            index = clamp_index(at, len(cells_now))
            cells_now[index:index] = completed
            return [cell["id"] for cell in completed]

        return await self._edit(change)

    async def delete(self, cell: str) -> None:
        await self._edit(lambda cells_now: cells_now.remove(find_cell(cells_now, cell)))

    async def move(self, cell: str, to: int) -> None:
        def change(cells_now: list[NbCell]) -> None:
            moved = find_cell(cells_now, cell)
            cells_now.remove(moved)
            cells_now.insert(clamp_index(to, len(cells_now)), moved)

        await self._edit(change)

    async def change(
        self,
        cell: str,
        *,
        source: str | None = None,
        kind: str | None = None,
        metadata: dict[str, Any] | None = None,
        expected: int | None = None,
    ) -> None:
        def change(cells_now: list[NbCell]) -> None:
            target = find_cell(cells_now, cell)
            check_version(copy_cell(target), self.version(cell), expected)
            if kind is not None and kind != target["cell_type"]:
                converted = with_kind(target, kind)
                target.clear()
                target.update(converted)
            if source is not None:
                target["source"] = source
            if metadata is not None:
                target["metadata"] = metadata

        await self._edit(change)

    async def begin_run(self, cell: str) -> None:
        def change(cells_now: list[NbCell]) -> None:
            target = find_cell(cells_now, cell)
            if target["cell_type"] == "code":
                target.update(outputs=[], execution_count=None)

        await self._edit(change)

    async def set_outputs(self, cell: str, outputs: Sequence[NbOutput], *, start: int = 0) -> None:
        def change(cells_now: list[NbCell]) -> None:
            target = find_cell(cells_now, cell)
            if target["cell_type"] == "code":
                target["outputs"] = [*target["outputs"][:start], *copy_outputs(outputs)]

        await self._edit(change)

    async def end_run(self, cell: str, count: int | None) -> None:
        def change(cells_now: list[NbCell]) -> None:
            target = find_cell(cells_now, cell)
            if target["cell_type"] == "code":
                target["execution_count"] = count

        await self._edit(change)

    async def save(self) -> None:
        """Edits are in the file already. Read what others wrote."""
        async with self._lock:
            await self.read()

    def watch(self, on_change: Callable[[], None]) -> Callable[[], None]:
        def notify() -> None:
            on_change()

        self._watchers.append(notify)
        return lambda: self._watchers.remove(notify) if notify in self._watchers else None

    async def close(self) -> None:
        self._watchers.clear()

    async def read(self) -> None:
        """Read the newest content of the file."""
        self._set_content(await self._contents.read(self._path))

    async def _edit(self, change: Callable[[list[NbCell]], T]) -> T:
        async with self._lock:
            newest = await self._contents.read(self._path, content=False)
            if str(newest.get("last_modified", "")) != self._modified:
                await self.read()
            cells = [copy_cell(cell) for cell in self._content["cells"]]
            result = change(cells)
            await self._write({**self._content, "cells": cells})
            return result

    async def _write(self, content: dict[str, Any]) -> None:
        saved = await self._contents.write(self._path, {"type": "notebook", "format": "json", "content": content})
        self._content = content
        self._modified = str(saved.get("last_modified", ""))
        self._record_versions()

    def _set_content(self, model: Model) -> None:
        content = model.get("content")
        if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
            raise JupyterError(f"{self._path!r} is no notebook of nbformat 4; save it with Jupyter first.")
        changed = bool(self._modified) and self._modified != model.get("last_modified")
        self._modified = str(model.get("last_modified", ""))
        self._content = {
            **content,
            "metadata": content.get("metadata") or {},
            "cells": complete_file_cells(content["cells"]),
        }
        if int(content.get("nbformat_minor") or 0) < 5:
            self._content["nbformat_minor"] = 5  # the first version whose cells have ids
        self._record_versions()
        if changed:
            for notify in list(self._watchers):
                notify()

    def _record_versions(self) -> None:
        self._versions.record_all({cell["id"]: cell["source"] for cell in self._content["cells"]})


def complete_file_cells(cells: list[Any]) -> list[NbCell]:
    """Complete cells. A cell without an id gets one from its index, which is the same at the next read."""
    completed, taken = [], set[str]()
    for index, cell in enumerate(cells):
        if not isinstance(cell, dict):
            raise JupyterError(f"Cell {index} of the file is no cell.")
        completed.append({**cell, **complete_cell({"id": f"cell-{index}", **cell}, taken)})
        if completed[-1]["cell_type"] == "code":
            completed[-1]["outputs"] = copy_outputs(completed[-1]["outputs"])
        taken.add(completed[-1]["id"])
    return completed


def find_cell(cells: list[NbCell], cell_id: str) -> NbCell:
    for cell in cells:
        if cell["id"] == cell_id:
            return cell
    raise cell_missing(cell_id)
