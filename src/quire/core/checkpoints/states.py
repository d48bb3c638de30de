"""The states of a notebook that can be gone back to: live ones, and those on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.pool import KernelPool
from quire.core.model import Cell, ForkReport, Notebook, RunId, Snapshot
from quire.core.ports.kernel import Kernel
from quire.core.ports.store import Store


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The namespace as it was after a run."""

    run: RunId | None  # None: before the first
    count: int
    cell: Cell | None  # None where it was deleted since
    kind: str  # live, durable or both
    census: ForkReport
    size: int  # bytes that dropping it would free: of memory, where it is live, else of disk
    names: tuple[str, ...]
    current: bool  # the namespace stands here
    stale: bool  # on a line that was rolled back


class CheckpointList:
    def __init__(self, store: Store, kernels: KernelPool, durable: SnapshotRestorer | None) -> None:
        self._store = store
        self._kernels = kernels
        self._durable = durable

    async def of(self, notebook: Notebook) -> list[Checkpoint]:
        """Oldest first."""
        kernel, line = self._kernels.live(notebook), self._kernels.line(notebook)
        saved: dict[RunId | None, list[Snapshot]] = {}
        for each in await self._durable.of(notebook) if self._durable is not None else []:
            saved.setdefault(each.run, []).append(each)
        found = await self._live(notebook, kernel, line, saved) if kernel is not None and line is not None else []
        live = {each.run for each in found}
        head = line.head if line is not None else None
        for run, snapshots in saved.items():
            if run not in live:
                found.append(await self._on_disk(notebook, run, snapshots, current=line is not None and run == head))
        return sorted(found, key=lambda each: each.count)

    async def _live(
        self, notebook: Notebook, kernel: Kernel, line: RunLineage, saved: Mapping[RunId | None, list[Snapshot]]
    ) -> list[Checkpoint]:
        sizes = await kernel.sizes()
        named = self._kernels.named(notebook)
        way = set(line.way(line.head))
        return [
            Checkpoint(
                run=run,
                count=line.steps[run].count,
                cell=await self._store.find_cell(notebook.id, line.steps[run].cell),
                kind="both" if run in saved else "live",
                census=census,
                size=sizes.get(run, 0),
                names=(*(name for name, of in named.items() if of == run), *_names(saved.get(run, []))),
                current=run == line.head,
                stale=run not in way,
            )
            for run, census in ((RunId(name), census) for name, census in list(kernel.checkpoints.items()))
            if run in line.steps
        ]

    async def _on_disk(
        self, notebook: Notebook, run: RunId | None, saved: list[Snapshot], *, current: bool
    ) -> Checkpoint:
        ran = await self._store.find_run(notebook.id, run) if run is not None else None
        return Checkpoint(
            run=run,
            count=ran.count if ran is not None else 0,
            cell=await self._store.find_cell(notebook.id, ran.cell) if ran is not None else None,
            kind="durable",
            census=fork_report(saved[-1]),
            size=sum(each.added for each in saved),
            names=_names(saved),
            current=current,
            stale=run is not None and (ran is None or ran.stale),
        )


def _names(snapshots: list[Snapshot]) -> tuple[str, ...]:
    return tuple(each.name for each in snapshots if each.name)


def fork_report(snapshot: Snapshot) -> ForkReport:
    """What a kernel that begins with it will not have."""
    return ForkReport(
        quality="degraded" if snapshot.lost else "clean",
        lost=tuple(f"{each.name} ({each.what})" for each in snapshot.lost),
    )
