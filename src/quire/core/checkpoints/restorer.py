"""What of a notebook is on disk: its snapshots, which of them to go back to, and what that does not bring back."""

from __future__ import annotations

import os
from dataclasses import dataclass

from quire.core.errors import OperationFailed
from quire.core.kernels.lineage import RunLineage, Step
from quire.core.model import Cell, CellState, Loss, Notebook, Run, RunId, Snapshot
from quire.core.ports.kernel import Kernel
from quire.core.ports.snapshots import Snapshots
from quire.core.ports.store import Store

_TRIED = 3  # snapshots, the newest first, before it is given up


@dataclass(frozen=True, kw_only=True)
class RestoredState:
    """A namespace that came back from disk."""

    snapshot: Snapshot
    line: RunLineage
    cell: Cell | None  # the one after whose run it was; None where there was none, or it was deleted since
    variables: int
    lost: tuple[tuple[Loss, Cell | None], ...]  # with the cell that makes it again
    after: tuple[Cell, ...]  # ran after it was saved: what they did is not in it
    notes: tuple[str, ...]  # what is different now
    damaged: tuple[str, ...]  # newer snapshots that could not be loaded, and why
    seconds: float

    @property
    def again(self) -> list[Cell]:
        """The cells that bring back what is missing, in the order they ran."""
        cells = {cell.id: cell for cell in (*(cell for _, cell in self.lost if cell is not None), *self.after)}
        return sorted(cells.values(), key=lambda cell: cell.run.count if cell.run is not None else 0)


class SnapshotNotLoaded(OperationFailed):
    """A snapshot did not load, and what the kernel held before is not in it any more."""


class SnapshotRestorer:
    def __init__(self, snapshots: Snapshots, store: Store) -> None:
        self._snapshots = snapshots
        self._store = store

    async def of(self, notebook: Notebook) -> list[Snapshot]:
        """Oldest first."""
        return await self._snapshots.of(notebook.id)

    async def standing(self, notebook: Notebook) -> Snapshot | None:
        """The one furthest on of where the namespace stood: what a first call brings back."""
        found: tuple[int, Snapshot] | None = None
        for snapshot in await self.of(notebook):
            run = await self._store.find_run(notebook.id, snapshot.run) if snapshot.run is not None else None
            if snapshot.run is None or (run is not None and not run.stale):
                count = run.count if run is not None else 0
                found = (count, snapshot) if found is None or count >= found[0] else found
        return found[1] if found is not None else None

    async def bring_back(self, notebook: Notebook, kernel: Kernel) -> tuple[RestoredState | None, list[str]]:
        """Load where the namespace stood last, into a kernel just begun; else why that cannot be."""
        runs = {run.id: run for run in await self._store.outline(notebook.id)}
        damaged: list[str] = []
        standing = [each for each in await self.of(notebook) if each.run is None or not _stale(runs, each.run)]
        standing.sort(key=lambda each: runs[each.run].count if each.run is not None else 0)  # not as they were saved
        for snapshot in standing[::-1][:_TRIED]:
            try:
                return await self.load(notebook, kernel, snapshot, damaged=tuple(damaged)), damaged
            except OperationFailed as error:
                damaged.append(str(error))
        return None, damaged

    async def load(
        self, notebook: Notebook, kernel: Kernel, snapshot: Snapshot, *, damaged: tuple[str, ...] = ()
    ) -> RestoredState:
        """Load a snapshot into the kernel. Raises OperationFailed; if it is NotLoaded, the namespace is fresh."""
        recipe = await self._snapshots.open(snapshot)
        try:
            restored = await kernel.load(recipe)
        except OperationFailed as error:
            raise SnapshotNotLoaded(f"{snapshot_label(snapshot)} could not be loaded: {error}.") from error
        finally:
            for each in (recipe.file, *recipe.packs):
                os.close(each)
        runs = {run.id: run for run in await self._store.outline(notebook.id)}
        line = RunLineage(head=snapshot.run, steps=_steps(runs, snapshot.run))
        line.bare = True  # no checkpoint holds it yet
        after = _after(runs, notebook, snapshot)
        lost = {each.name: each for each in (*snapshot.lost, *restored.lost)}
        return RestoredState(
            snapshot=snapshot,
            line=line,
            cell=await self._cell(notebook, runs, snapshot.run),
            variables=len(snapshot.variables) + len(snapshot.functions) - len(lost),
            lost=tuple([(each, await self._cell(notebook, runs, each.run)) for each in lost.values()]),
            after=tuple([cell for run in after if (cell := await self._cell(notebook, runs, run)) is not None]),
            notes=restored.notes,
            damaged=damaged,
            seconds=restored.seconds,
        )

    async def give_up(self, notebook: Notebook) -> None:
        """Nothing is to be brought back by itself: snapshots with a name stay, but no run stands any more."""
        snapshots = await self.of(notebook)
        runs = await self._store.outline(notebook.id)
        led_on = {run.parent for run in runs} | {each.run for each in snapshots}
        marks = {run.id: True for run in runs if run.parent is not None or run.id in led_on}  # not those of an ipynb
        await self._store.mark_stale(notebook.id, marks)
        await self._snapshots.drop([each.id for each in snapshots if not each.name])

    async def drop(self, notebook: Notebook) -> None:
        """Nothing of it stays on disk."""
        await self._snapshots.drop([each.id for each in await self.of(notebook)])

    async def nearer(self, notebook: Notebook, since: list[RunId]) -> Snapshot | None:
        """The newest snapshot after one of these runs."""
        found = {each.run: each for each in await self.of(notebook)} if since else {}
        return next((found[run] for run in reversed(since) if run in found), None)

    async def steps(self, notebook: Notebook, to: RunId | None) -> dict[RunId, Step]:
        """The runs that led there."""
        return _steps({run.id: run for run in await self._store.outline(notebook.id)}, to)

    async def _cell(self, notebook: Notebook, runs: dict[RunId, Run], run: RunId | None) -> Cell | None:
        return await self._store.find_cell(notebook.id, runs[run].cell) if run is not None and run in runs else None


def _stale(runs: dict[RunId, Run], run: RunId) -> bool:
    """A run that is not in the journal any more was cleared away, and its state with it."""
    return run not in runs or runs[run].stale


def _steps(runs: dict[RunId, Run], to: RunId | None) -> dict[RunId, Step]:
    steps: dict[RunId, Step] = {}
    while to is not None and to in runs and to not in steps:
        steps[to] = Step(runs[to].parent, runs[to].cell, runs[to].count)
        to = runs[to].parent
    return steps


def _after(runs: dict[RunId, Run], notebook: Notebook, snapshot: Snapshot) -> list[RunId]:
    """The runs that went on from there and left their mark."""
    reached, found = {snapshot.run}, []
    for run in runs.values():
        own = run.parent is not None or run.started_at >= notebook.created_at  # not copied with a branch
        if run.parent in reached and own and not run.stale and run.state is not CellState.CRASHED:
            reached.add(run.id)
            found.append(run.id)
    return found


def snapshot_label(snapshot: Snapshot) -> str:
    """A snapshot, in a sentence."""
    return f"The state saved as {snapshot.name!r}" if snapshot.name else f"The snapshot {snapshot.id[:12]}"
