"""Restore a namespace from a notebook's snapshots, and report what a snapshot does not contain."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from quire.core.errors import OperationFailed
from quire.core.kernels.lineage import RunLineage, Step
from quire.core.model import Cell, CellState, Loss, Notebook, Run, RunId, Snapshot
from quire.core.ports.kernel import Kernel
from quire.core.ports.snapshots import Snapshots
from quire.core.ports.store import NotebookStore, RunStore

_MAX_ATTEMPTS = 3  # snapshots that are tried, newest first


@dataclass(frozen=True, kw_only=True)
class RestoredState:
    """A namespace that was loaded from disk."""

    snapshot: Snapshot
    lineage: RunLineage
    cell: Cell | None  # the one after whose run it was saved; None without a run, or if the cell is deleted
    variables: int
    lost: tuple[tuple[Loss, Cell | None], ...]  # with the cell that makes it again
    after: tuple[Cell, ...]  # cells that ran after it was saved: their effects are not in it
    notes: tuple[str, ...]  # what is different now
    damaged: tuple[str, ...]  # newer snapshots that could not be loaded, and why
    seconds: float

    @property
    def again(self) -> list[Cell]:
        """The cells that make what is missing, in the order they ran."""
        cells = {cell.id: cell for cell in (*(cell for _, cell in self.lost if cell is not None), *self.after)}
        return sorted(cells.values(), key=lambda cell: cell.run.count if cell.run is not None else 0)


class SnapshotNotLoaded(OperationFailed):
    """A snapshot did not load, and the kernel has lost its former state."""


class SnapshotRestorer:
    def __init__(self, snapshots: Snapshots, store: NotebookStore, run_store: RunStore) -> None:
        self._snapshots = snapshots
        self._store = store
        self._run_store = run_store

    async def list_snapshots(self, notebook: Notebook) -> list[Snapshot]:
        """Oldest first."""
        return await self._snapshots.list_for_notebook(notebook.id)

    async def find_latest(self, notebook: Notebook) -> Snapshot | None:
        """The snapshot of the latest state that is not stale: the one that the next kernel starts with."""
        found: tuple[int, Snapshot] | None = None
        for snapshot in await self.list_snapshots(notebook):
            run = await self._run_store.find_run(notebook.id, snapshot.run) if snapshot.run is not None else None
            if snapshot.run is None or (run is not None and not run.stale):
                count = run.count if run is not None else 0
                found = (count, snapshot) if found is None or count >= found[0] else found
        return found[1] if found is not None else None

    async def restore_latest(self, notebook: Notebook, kernel: Kernel) -> tuple[RestoredState | None, list[str]]:
        """Load the latest state into a new kernel and mark the runs after it stale. Returns also the errors of newer
        snapshots."""
        runs = {run.id: run for run in await self._run_store.list_run_summaries(notebook.id)}
        damaged: list[str] = []
        valid = [
            snapshot
            for snapshot in await self.list_snapshots(notebook)
            if snapshot.run is None or (snapshot.run in runs and not runs[snapshot.run].stale)
        ]
        valid.sort(key=lambda snapshot: runs[snapshot.run].count if snapshot.run is not None else 0)
        state = None
        for snapshot in valid[::-1][:_MAX_ATTEMPTS]:
            try:
                state = await self.load(notebook, kernel, snapshot, damaged=tuple(damaged))
                break
            except OperationFailed as error:
                damaged.append(str(error))
        if not kernel.alive:
            raise OperationFailed("The kernel ended while it started. Call again.")
        if state is not None:
            with contextlib.suppress(OperationFailed):  # a full disk: the answer names the cells all the same
                marks = {cell.run.id: True for cell in state.after if cell.run is not None}
                await self._run_store.mark_stale(notebook.id, marks)
        return state, damaged

    async def load(
        self, notebook: Notebook, kernel: Kernel, snapshot: Snapshot, *, damaged: tuple[str, ...] = ()
    ) -> RestoredState:
        """Load a snapshot. Raises OperationFailed; if it is SnapshotNotLoaded, the kernel has lost its former state."""
        recipe = await self._snapshots.open_recipe(snapshot)
        try:
            restored = await kernel.load(recipe)
        except OperationFailed as error:
            raise SnapshotNotLoaded(f"{_label(snapshot)} could not be loaded: {error}.") from error
        finally:
            for descriptor in (recipe.file, *recipe.packs):
                os.close(descriptor)
        runs = {run.id: run for run in await self._run_store.list_run_summaries(notebook.id)}
        lost = {loss.name: loss for loss in (*snapshot.lost, *restored.lost)}
        after = [await self._cell_of(notebook, runs, run) for run in _runs_after(runs, notebook, snapshot)]
        return RestoredState(
            snapshot=snapshot,
            lineage=RunLineage(head=snapshot.run, steps=_steps(runs, snapshot.run), lacks_base=True),
            cell=await self._cell_of(notebook, runs, snapshot.run),
            variables=len(snapshot.variables) + len(snapshot.functions) - len(lost),
            lost=tuple([(loss, await self._cell_of(notebook, runs, loss.run)) for loss in lost.values()]),
            after=tuple(cell for cell in after if cell is not None),
            notes=restored.notes,
            damaged=damaged,
            seconds=restored.seconds,
        )

    async def discard_state(self, notebook: Notebook) -> None:
        """Let the next kernel start empty: drop snapshots without a name, and mark the runs stale."""
        snapshots = await self.list_snapshots(notebook)
        runs = await self._run_store.list_run_summaries(notebook.id)
        continued = {run.parent for run in runs} | {snapshot.run for snapshot in snapshots}
        marks = {run.id: True for run in runs if run.parent is not None or run.id in continued}  # not those of an ipynb
        await self._run_store.mark_stale(notebook.id, marks)
        await self._snapshots.delete([snapshot.id for snapshot in snapshots if not snapshot.name])

    async def drop_all(self, notebook: Notebook) -> None:
        """Drop all snapshots of the notebook."""
        await self._snapshots.delete([snapshot.id for snapshot in await self.list_snapshots(notebook)])

    async def find_newest(self, notebook: Notebook, runs: list[RunId]) -> Snapshot | None:
        """The snapshot of the last of these runs that has one."""
        found = {snapshot.run: snapshot for snapshot in await self.list_snapshots(notebook)} if runs else {}
        return next((found[run] for run in reversed(runs) if run in found), None)

    async def list_steps(self, notebook: Notebook, to: RunId | None) -> dict[RunId, Step]:
        """The runs that led to this one."""
        return _steps({run.id: run for run in await self._run_store.list_run_summaries(notebook.id)}, to)

    async def _cell_of(self, notebook: Notebook, runs: dict[RunId, Run], run: RunId | None) -> Cell | None:
        return await self._store.find_cell(notebook.id, runs[run].cell) if run is not None and run in runs else None


def _steps(runs: dict[RunId, Run], to: RunId | None) -> dict[RunId, Step]:
    steps: dict[RunId, Step] = {}
    while to is not None and to in runs and to not in steps:
        steps[to] = Step(runs[to].parent, runs[to].cell, runs[to].count)
        to = runs[to].parent
    return steps


def _runs_after(runs: dict[RunId, Run], notebook: Notebook, snapshot: Snapshot) -> list[RunId]:
    """The runs that continued from the snapshot's state and have an effect."""
    reached, found = {snapshot.run}, []
    for run in runs.values():
        is_own = run.parent is not None or run.started_at >= notebook.created_at  # not copied with a branch
        if run.parent in reached and is_own and not run.stale and run.state is not CellState.CRASHED:
            reached.add(run.id)
            found.append(run.id)
    return found


def _label(snapshot: Snapshot) -> str:
    return f"The state saved as {snapshot.name!r}" if snapshot.name else f"The snapshot {snapshot.id[:12]}"
