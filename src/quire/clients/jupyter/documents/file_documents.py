"""Notebooks as files by the contents API, where no collaboration is installed: an edit reads and writes the file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from quire.clients.jupyter.documents import cells as plain
from quire.clients.jupyter.documents.contents import Contents, Model, notebook
from quire.clients.jupyter.documents.live_document import gone, refuse_stale
from quire.clients.jupyter.documents.versions import Versions
from quire.clients.jupyter.ports import JupyterError, NbCell, NbOutput

T = TypeVar("T")


class PlainDocuments:
    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._turns: dict[str, asyncio.Lock] = {}

    async def open(self, path: str) -> PlainDocument:
        """A path that `below_root` gave. Raises Missing, and JupyterError for what is no notebook."""
        await notebook(self._contents, path)
        document = PlainDocument(path, self._contents, self._turns.setdefault(path, asyncio.Lock()))
        await document.read()
        return document


class PlainDocument:
    """`turn` is shared by all who have this file open through us. Cells are merged by their ids: an edit changes its
    own cell in the newest file, and nothing else of it. The API has no way to say "if unchanged", so what others write
    in the moment between our look and our writing is overwritten."""

    live = False

    def __init__(self, path: str, contents: Contents, turn: asyncio.Lock) -> None:
        self._path = path
        self._contents = contents
        self._turn = turn
        self._versions = Versions()
        self._content: dict[str, Any] = {"cells": [], "metadata": {}}
        self._modified = ""
        self._watchers: list[Callable[[], None]] = []

    @property
    def path(self) -> str:
        return self._path

    def cells(self) -> list[NbCell]:
        return [copied(cell) for cell in self._content["cells"]]

    def metadata(self) -> dict[str, Any]:
        return dict(self._content["metadata"])

    def version(self, cell: str) -> int:
        return self._versions.of(cell)

    async def insert(self, at: int, cells: Sequence[NbCell]) -> list[str]:
        def change(there: list[NbCell]) -> list[str]:
            made = plain.all_whole(cells, [cell["id"] for cell in there])
            place = plain.place_for(at, len(there))
            there[place:place] = made
            return [cell["id"] for cell in made]

        return await self._edit(change)

    async def delete(self, cell: str) -> None:
        await self._edit(lambda there: there.remove(found(there, cell)))

    async def move(self, cell: str, to: int) -> None:
        def change(there: list[NbCell]) -> None:
            moved = found(there, cell)
            there.remove(moved)
            there.insert(plain.place_for(to, len(there)), moved)

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
        def change(there: list[NbCell]) -> None:
            one = found(there, cell)
            refuse_stale(copied(one), self.version(cell), expected)
            if kind is not None and kind != one["cell_type"]:
                made = plain.as_kind(one, kind)
                one.clear()
                one.update(made)
            if source is not None:
                one["source"] = source
            if metadata is not None:
                one["metadata"] = metadata

        await self._edit(change)

    async def begin_run(self, cell: str) -> None:
        def change(there: list[NbCell]) -> None:
            one = found(there, cell)
            if one["cell_type"] == "code":
                one.update(outputs=[], execution_count=None)

        await self._edit(change)

    async def show(self, cell: str, outputs: Sequence[NbOutput], *, start: int = 0) -> None:
        def change(there: list[NbCell]) -> None:
            one = found(there, cell)
            if one["cell_type"] == "code":
                one["outputs"] = [*one["outputs"][:start], *plain.plain_outputs(outputs)]

        await self._edit(change)

    async def end_run(self, cell: str, count: int | None) -> None:
        def change(there: list[NbCell]) -> None:
            one = found(there, cell)
            if one["cell_type"] == "code":
                one["execution_count"] = count

        await self._edit(change)

    async def save(self) -> None:
        """It is in the file already; what others wrote is read."""
        async with self._turn:
            await self.read()

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        def tell() -> None:
            heard()

        self._watchers.append(tell)
        return lambda: self._watchers.remove(tell) if tell in self._watchers else None

    async def close(self) -> None:
        self._watchers.clear()

    async def read(self) -> None:
        """The newest there is."""
        self._take(await self._contents.read(self._path))

    async def _edit(self, change: Callable[[list[NbCell]], T]) -> T:
        async with self._turn:
            newest = await self._contents.read(self._path, content=False)
            if str(newest.get("last_modified", "")) != self._modified:
                await self.read()
            cells = [copied(cell) for cell in self._content["cells"]]
            result = change(cells)
            await self._write({**self._content, "cells": cells})
            return result

    async def _write(self, content: dict[str, Any]) -> None:
        said = await self._contents.write(self._path, {"type": "notebook", "format": "json", "content": content})
        self._content = content
        self._modified = str(said.get("last_modified", ""))
        self._see()

    def _take(self, model: Model) -> None:
        content = model.get("content")
        if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
            raise JupyterError(f"{self._path!r} is no notebook of nbformat 4; save it with Jupyter first.")
        changed = bool(self._modified) and self._modified != model.get("last_modified")
        self._modified = str(model.get("last_modified", ""))
        self._content = {**content, "metadata": content.get("metadata") or {}, "cells": named(content["cells"])}
        if int(content.get("nbformat_minor") or 0) < 5:
            self._content["nbformat_minor"] = 5  # the first whose cells have ids
        self._see()
        if changed:
            for each in list(self._watchers):
                each()

    def _see(self) -> None:
        self._versions.see_all({cell["id"]: cell["source"] for cell in self._content["cells"]})


def named(cells: list[Any]) -> list[NbCell]:
    """Whole, each with an id; one that has none is named by its place, so that it is the same at the next reading."""
    made, taken = [], set[str]()
    for place, cell in enumerate(cells):
        if not isinstance(cell, dict):
            raise JupyterError(f"Cell {place} of the file is no cell.")
        made.append({**cell, **plain.whole({"id": f"cell-{place}", **cell}, taken)})
        if made[-1]["cell_type"] == "code":
            made[-1]["outputs"] = plain.plain_outputs(made[-1]["outputs"])
        taken.add(made[-1]["id"])
    return made


def found(cells: list[NbCell], name: str) -> NbCell:
    for cell in cells:
        if cell["id"] == name:
            return cell
    raise gone(name)


def copied(cell: NbCell) -> NbCell:
    copy = {**cell, "metadata": dict(cell["metadata"])}
    if "outputs" in cell:
        copy["outputs"] = [dict(output) for output in cell["outputs"]]
    return copy
