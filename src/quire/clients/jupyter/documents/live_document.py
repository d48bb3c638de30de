"""A shared document: reads from its replica, edits as transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quire.clients.jupyter.documents.cells import clamp_index, complete_cells, with_kind
from quire.clients.jupyter.ports import CellChanged, Missing, NbCell, NbOutput
from quire.clients.jupyter.rooms.replica import Replica
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook


class LiveDocument:
    """One user of a replica. `release` is called once, when the document is closed."""

    live = True

    def __init__(self, replica: Replica, release: Callable[[], Awaitable[None]]) -> None:
        self._replica = replica
        self._release: Callable[[], Awaitable[None]] | None = release
        self._stop_watching: list[Callable[[], None]] = []

    @property
    def path(self) -> str:
        return self._replica.path

    def cells(self) -> list[NbCell]:
        return self._replica.shared.cells()

    def metadata(self) -> dict[str, Any]:
        return self._replica.shared.metadata()

    def version(self, cell: str) -> int:
        return self._replica.shared.versions.get(cell)

    async def insert(self, at: int, cells: Sequence[NbCell]) -> list[str]:
        def change(shared: SharedNotebook) -> list[str]:
            completed = complete_cells(cells, shared.ids())
            shared.insert(clamp_index(at, len(shared)), completed)
            ids = [cell["id"] for cell in completed]
            for cell in completed:
                self._replica.own_changes.record_source(cell)
            self._replica.own_changes.inserted.update(ids)
            return ids

        ids = await self._replica.edit(change)
        if ids:
            await self._replica.show_cursor(ids[-1])
        return ids

    async def delete(self, cell: str) -> None:
        def change(shared: SharedNotebook) -> None:
            self._record(shared, cell)
            shared.delete(cell)
            self._replica.own_changes.deleted.add(cell)
            self._replica.own_changes.inserted.discard(cell)

        await self._replica.edit(change)

    async def move(self, cell: str, to: int) -> None:
        def change(shared: SharedNotebook) -> None:
            current = self._record(shared, cell)
            shared.delete(cell)
            shared.insert(clamp_index(to, len(shared)), [current])

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
            current = self._record(shared, cell)
            check_version(current, self.version(cell), expected)
            if kind is not None and kind != current["cell_type"]:
                shared.replace_cell(shared.index_of(cell), with_kind(current, kind))
            if source is not None:
                shared.set_source(cell, source)
            if metadata is not None:
                shared.set_metadata(cell, metadata)
            self._record(shared, cell)

        await self._replica.edit(change)
        await self._replica.show_cursor(cell)

    async def begin_run(self, cell: str) -> None:
        def change(shared: SharedNotebook) -> None:
            self._record(shared, cell)
            shared.set_outputs(cell, ())
            shared.set_run(cell, state="running", count=None)

        await self._replica.edit(change)
        await self._replica.show_cursor(cell)

    async def set_outputs(self, cell: str, outputs: Sequence[NbOutput], *, start: int = 0) -> None:
        await self._replica.edit(lambda shared: shared.set_outputs(cell, outputs, start))

    async def end_run(self, cell: str, count: int | None) -> None:
        await self._replica.edit(lambda shared: shared.set_run(cell, state="idle", count=count))

    async def save(self) -> None:
        await self._replica.save()

    def watch(self, on_change: Callable[[], None]) -> Callable[[], None]:
        def notify() -> None:
            on_change()

        def stop() -> None:
            if notify in self._replica.watchers:
                self._replica.watchers.remove(notify)

        self._replica.watchers.append(notify)
        self._stop_watching.append(stop)
        return stop

    async def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            for stop in self._stop_watching:
                stop()
            await release()

    def _record(self, shared: SharedNotebook, cell: str) -> NbCell:
        current = shared.cell(cell)
        if current is None:
            raise cell_missing(cell)
        self._replica.own_changes.record_source(current)
        return current


def cell_missing(cell: str) -> Missing:
    return Missing(f"There is no cell {cell!r} any more; read the notebook again.")


def check_version(cell: NbCell, version: int, expected: int | None) -> None:
    if expected is not None and expected != version:
        raise CellChanged(
            f"The cell {cell['id']!r} was changed meanwhile: it is at version {version}, not {expected}. "
            "Nothing was written; read its source and change it again.",
            cell,
        )
