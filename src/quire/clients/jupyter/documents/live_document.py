"""A document that others edit meanwhile: reads from the replica, edits as transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quire.clients.jupyter.documents import cells as plain
from quire.clients.jupyter.ports import Changed, Missing, NbCell, NbOutput
from quire.clients.jupyter.rooms.replica import Replica
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook


class LiveDocument:
    """One who has it open; `release` is called once, when that ends."""

    live = True

    def __init__(self, replica: Replica, release: Callable[[], Awaitable[None]]) -> None:
        self._replica = replica
        self._release: Callable[[], Awaitable[None]] | None = release
        self._watched: list[Callable[[], None]] = []

    @property
    def path(self) -> str:
        return self._replica.path

    def cells(self) -> list[NbCell]:
        return self._replica.shared.cells()

    def metadata(self) -> dict[str, Any]:
        return self._replica.shared.metadata()

    def version(self, cell: str) -> int:
        return self._replica.shared.versions.of(cell)

    async def insert(self, at: int, cells: Sequence[NbCell]) -> list[str]:
        def change(shared: SharedNotebook) -> list[str]:
            made = plain.all_whole(cells, shared.ids())
            shared.insert(plain.place_for(at, len(shared)), made)
            names = [cell["id"] for cell in made]
            for cell in made:
                self._replica.own.touch(cell)
            self._replica.own.inserted.update(names)
            return names

        names = await self._replica.edit(change)
        if names:
            await self._replica.show_cursor(names[-1])
        return names

    async def delete(self, cell: str) -> None:
        def change(shared: SharedNotebook) -> None:
            self._touch(shared, cell)
            shared.delete(cell)
            self._replica.own.deleted.add(cell)
            self._replica.own.inserted.discard(cell)

        await self._replica.edit(change)

    async def move(self, cell: str, to: int) -> None:
        def change(shared: SharedNotebook) -> None:
            there = self._touch(shared, cell)
            shared.delete(cell)
            shared.insert(plain.place_for(to, len(shared)), [there])

        await self._replica.edit(change)

    async def change(
        self,
        cell: str,
        *,
        source: str | None = None,
        kind: str | None = None,
        metadata: dict[str, Any] | None = None,
        expected: int | None = None,
    ) -> None:
        def change(shared: SharedNotebook) -> None:
            there = self._touch(shared, cell)
            refuse_stale(there, self.version(cell), expected)
            if kind is not None and kind != there["cell_type"]:
                shared.put_in_place(shared.place(cell), plain.as_kind(there, kind))
            if source is not None:
                shared.set_source(cell, source)
            if metadata is not None:
                shared.set_metadata(cell, metadata)
            self._touch(shared, cell)

        await self._replica.edit(change)
        await self._replica.show_cursor(cell)

    async def begin_run(self, cell: str) -> None:
        def change(shared: SharedNotebook) -> None:
            self._touch(shared, cell)
            shared.set_outputs(cell, ())
            shared.set_run(cell, state="running", count=None)

        await self._replica.edit(change)
        await self._replica.show_cursor(cell)

    async def show(self, cell: str, outputs: Sequence[NbOutput], *, start: int = 0) -> None:
        await self._replica.edit(lambda shared: shared.set_outputs(cell, outputs, start))

    async def end_run(self, cell: str, count: int | None) -> None:
        await self._replica.edit(lambda shared: shared.set_run(cell, state="idle", count=count))

    async def save(self) -> None:
        await self._replica.save()

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        def tell() -> None:
            heard()

        def end() -> None:
            if tell in self._replica.watchers:
                self._replica.watchers.remove(tell)

        self._replica.watchers.append(tell)
        self._watched.append(end)
        return end

    async def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            for end in self._watched:
                end()
            await release()

    def _touch(self, shared: SharedNotebook, cell: str) -> NbCell:
        there = shared.cell(cell)
        if there is None:
            raise gone(cell)
        self._replica.own.touch(there)
        return there


def gone(cell: str) -> Missing:
    return Missing(f"There is no cell {cell!r} any more; read the notebook again.")


def refuse_stale(cell: NbCell, version: int, expected: int | None) -> None:
    if expected is not None and expected != version:
        raise Changed(
            f"The cell {cell['id']!r} was changed meanwhile: it is at version {version}, not {expected}. "
            "Nothing was written; look at its source and change it anew.",
            cell,
        )
