"""Find the state that a caller names: by checkpoint, snapshot name, cell, or "before" a cell."""

from __future__ import annotations

import re
from collections.abc import Collection

from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.errors import InvalidRequest, NotFound
from quire.core.kernels.lineage import Step
from quire.core.kernels.slot import KernelSlot
from quire.core.model import Cell, Notebook, RunId, Snapshot
from quire.core.notebooks.cells import Cells
from quire.core.ports.kernel import START, Kernel
from quire.core.ports.store import NotebookStore, RunStore

_BEFORE = "before "
_CELL = "cell "
_MAX_SHOWN_CHARS = 100  # of an unknown name


class StateResolver:
    def __init__(
        self, store: NotebookStore, run_store: RunStore, cells: Cells, restorer: SnapshotRestorer | None
    ) -> None:
        self._store = store
        self._run_store = run_store
        self._cells = cells
        self._restorer = restorer

    async def list_snapshots(self, notebook: Notebook) -> list[Snapshot]:
        return await self._restorer.list_snapshots(notebook) if self._restorer is not None else []

    async def list_steps(self, notebook: Notebook, run: RunId | None) -> dict[RunId, Step]:
        """The runs that led to this one, as far as they are recorded on disk."""
        return await self._restorer.list_steps(notebook, run) if self._restorer is not None else {}

    async def resolve(self, slot: KernelSlot, kernel: Kernel, name: str | int) -> str | Snapshot:
        """The checkpoint or snapshot that `name` means; live ones first. Raises NotFound and InvalidRequest."""
        text = str(name).strip()
        text = slot.named_checkpoints.get(text, text)
        snapshots = await self.list_snapshots(slot.notebook)
        saved = {snapshot.run: snapshot for snapshot in snapshots}
        for snapshot in snapshots:
            if snapshot.name == text:
                is_live = snapshot.run is not None and snapshot.run in (*kernel.checkpoints, slot.lineage.head)
                return snapshot.run if snapshot.run is not None and is_live else snapshot
        if text == "start" or text in kernel.checkpoints:
            return START if text == "start" else text
        if text in saved:
            return saved[RunId(text)]
        is_before = text.startswith(_BEFORE)
        cell = await self._find_cell(slot, text, snapshots)
        if cell.run is None:
            raise InvalidRequest(
                f"Cell {cell.number} has not run: there is no state {'before' if is_before else 'after'} it. Nothing "
                "was changed. list_checkpoints shows the states there are."
            )
        state = slot.lineage.find_state(cell.run.id, before=is_before)
        if state is None and self._restorer is not None:  # the run of another kernel
            state = (cell.run.parent or START) if is_before else cell.run.id
        if state is not None and (state in (START, slot.lineage.head) or state in kernel.checkpoints):
            return state
        if state is not None and state in saved:
            return saved[RunId(state)]
        raise NotFound(await self._state_not_kept(slot.notebook, {*kernel.checkpoints, *saved}, cell))

    async def _find_cell(self, slot: KernelSlot, text: str, snapshots: list[Snapshot]) -> Cell:
        cell = text.removeprefix(_BEFORE).removeprefix(_CELL)
        try:
            return await self._cells.get(slot.notebook, cell)
        except NotFound as error:
            if re.fullmatch(r"-?\d+", cell):  # a cell is meant, and the error lists the cells there are
                raise
            names = [*slot.named_checkpoints, *(snapshot.name for snapshot in snapshots)]
            raise NotFound(_unknown_state(text, names)) from error

    async def _state_not_kept(self, notebook: Notebook, states: Collection[str | None], cell: Cell) -> str:
        runs = [await self._run_store.find_run(notebook.id, RunId(state)) for state in states if state is not None]
        cells = [await self._store.find_cell(notebook.id, run.cell) for run in runs if run is not None]
        numbers = sorted({cell.number for cell in cells if cell is not None})
        existing = (
            f"There are checkpoints after cells {', '.join(map(str, numbers))}" if numbers else "There is no other"
        )
        return (
            f"That state of cell {cell.number} is not kept: old checkpoints are dropped when memory is needed, on disk "
            f"are the newest ten and those that have a name. {existing}, and `start`. Nothing was changed."
        )


def _unknown_state(text: str, names: list[str]) -> str:
    known = ", ".join(map(repr, dict.fromkeys(filter(None, names))))
    saved = f"the name of a saved state ({known or 'nothing is saved yet'})"
    return (
        f"{text[:_MAX_SHOWN_CHARS]!r} names no state of this notebook. Nothing was changed. Give a cell (its number or "
        f'id), "before" and a cell, as in "before 3", "start", a checkpoint that list_checkpoints shows, or {saved}.'
    )
