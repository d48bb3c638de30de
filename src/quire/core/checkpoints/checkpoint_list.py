"""List the states that a notebook can be rolled back to: checkpoints in memory and snapshots on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quire.core.checkpoints.checkpointer import Checkpointer
from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Cell, ForkReport, Notebook, RunId, Snapshot
from quire.core.ports.kernel import START, Kernel
from quire.core.ports.store import NotebookStore, RunStore


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The namespace as it was after a run."""

    run: RunId | None  # None: before the first
    count: int
    cell: Cell | None  # None if it is deleted
    kind: str  # live, durable or both
    census: ForkReport
    size: int  # bytes that dropping it frees: of memory if it is live, else of disk
    names: tuple[str, ...]
    current: bool  # the namespace is in this state
    stale: bool  # a rollback left it


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What a crash would cost now."""

    quality: str  # clean, degraded, hostile; none without a kernel or a checkpoint of the current state
    run: int | None = None  # the count of the last protected run; with quality none, of the first unprotected one
    why: str = ""


class CheckpointList:
    def __init__(
        self,
        store: NotebookStore,
        run_store: RunStore,
        slots: KernelSlots,
        checkpointer: Checkpointer,
        restorer: SnapshotRestorer | None,
    ) -> None:
        self._store = store
        self._run_store = run_store
        self._slots = slots
        self._checkpointer = checkpointer
        self._restorer = restorer

    async def list_checkpoints(self, notebook: Notebook) -> list[Checkpoint]:
        """Oldest first."""
        if not self._slots.is_busy(notebook):
            async with self._slots.lock(notebook) as slot:  # by then the checkpoint of the last run is taken
                await self._checkpointer.prepare(slot)
        kernel, lineage = self._slots.live_kernel(notebook), self._slots.lineage(notebook)
        saved: dict[RunId | None, list[Snapshot]] = {}
        for snapshot in await self._restorer.list_snapshots(notebook) if self._restorer is not None else []:
            saved.setdefault(snapshot.run, []).append(snapshot)
        found: list[Checkpoint] = []
        if kernel is not None and lineage is not None:
            found = await self._list_live(notebook, kernel, lineage, saved)
        live = {checkpoint.run for checkpoint in found}
        for run, snapshots in saved.items():
            if run not in live:
                is_current = lineage is not None and run == lineage.head
                found.append(await self._saved(notebook, run, snapshots, is_current=is_current))
        return sorted(found, key=lambda checkpoint: checkpoint.count)

    async def _list_live(
        self, notebook: Notebook, kernel: Kernel, lineage: RunLineage, saved: Mapping[RunId | None, list[Snapshot]]
    ) -> list[Checkpoint]:
        sizes = await kernel.sizes()
        named = self._slots.get(notebook).named_checkpoints
        ancestors = set(lineage.ancestors(lineage.head))
        return [
            Checkpoint(
                run=run,
                count=lineage.steps[run].count,
                cell=await self._store.find_cell(notebook.id, lineage.steps[run].cell),
                kind="both" if run in saved else "live",
                census=report,
                size=sizes.get(run, 0),
                names=(*(name for name, named_run in named.items() if named_run == run), *_names(saved.get(run, []))),
                current=run == lineage.head,
                stale=run not in ancestors,
            )
            for run, report in ((RunId(name), report) for name, report in list(kernel.checkpoints.items()))
            if run in lineage.steps
        ]

    async def _saved(
        self, notebook: Notebook, run_id: RunId | None, snapshots: list[Snapshot], *, is_current: bool
    ) -> Checkpoint:
        run = await self._run_store.find_run(notebook.id, run_id) if run_id is not None else None
        return Checkpoint(
            run=run_id,
            count=run.count if run is not None else 0,
            cell=await self._store.find_cell(notebook.id, run.cell) if run is not None else None,
            kind="durable",
            census=report_of(snapshots[-1]),
            size=sum(snapshot.added for snapshot in snapshots),
            names=_names(snapshots),
            current=is_current,
            stale=run_id is not None and (run is None or run.stale),
        )

    def protection(self, notebook: Notebook) -> Protection:
        kernel, lineage = self._slots.live_kernel(notebook), self._slots.lineage(notebook)
        if kernel is None or lineage is None:
            return Protection(quality="none", why="there is no kernel yet")
        name, since = lineage.nearest_checkpoint(kernel.checkpoints)
        if since:
            why = lineage.why_unprotected or "a checkpoint is being taken"
            return Protection(quality="none", run=lineage.steps[since[0]].count, why=why)
        report = kernel.checkpoints[name] if name != START else lineage.start
        count = lineage.steps[RunId(name)].count if name != START else None
        return Protection(quality=report.quality, run=count, why=", ".join(report.lost))


def _names(snapshots: list[Snapshot]) -> tuple[str, ...]:
    return tuple(snapshot.name for snapshot in snapshots if snapshot.name)


def report_of(snapshot: Snapshot) -> ForkReport:
    """What a kernel that starts with the snapshot does not have."""
    return ForkReport(
        quality="degraded" if snapshot.lost else "clean",
        lost=tuple(f"{loss.name} ({loss.what})" for loss in snapshot.lost),
    )
