"""Branch a notebook: a second notebook that starts with the state of the first at some point."""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import uuid4

from quire.core.checkpoints.checkpoint_list import report_of
from quire.core.checkpoints.checkpointer import Checkpointer
from quire.core.checkpoints.state_resolver import StateResolver
from quire.core.errors import InvalidRequest
from quire.core.kernels.admission import KernelAdmission
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.pool import KernelPool
from quire.core.kernels.slot import KernelSlot
from quire.core.limits.validation import check_name, check_states
from quire.core.model import Cell, NewCell, Notebook, NotebookId, Origin, RunId, Snapshot
from quire.core.notebooks.cells import Cells
from quire.core.notebooks.service import Notebooks
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.kernel import START, Kernel


class Branches:
    def __init__(
        self,
        notebooks: Notebooks,
        cells: Cells,
        kernels: KernelPool,
        checkpointer: Checkpointer,
        admission: KernelAdmission,
        resolver: StateResolver,
        feed: Feed,
    ) -> None:
        self._notebooks = notebooks
        self._cells = cells
        self._kernels = kernels
        self._checkpointer = checkpointer
        self._admission = admission
        self._resolver = resolver
        self._feed = feed

    async def create(self, notebook: Notebook, name: str, at: str | int | None = None) -> Notebook:
        """Make a notebook with the state that `at` names and the cells that led to it. The first notebook stays as it
        is."""
        check_states(notebook)
        check_name(name)
        self._kernels.slots.check_not_busy(notebook)
        if await self._notebooks.find(notebook.owner, name) is not None:
            raise InvalidRequest(f"There is a notebook {name!r} already. Choose another name.")
        async with self._kernels.slots.lock(notebook) as slot:
            kernel = await self._kernels.ensure_with_history(slot)
            state = None if at is None else await self._resolver.resolve(slot, kernel, at)
            if state is None or state == slot.lineage.head:
                state = await self._checkpointer.require(slot, kernel)
            new = _derive(notebook, name, state)
            async with self._admission.reserve(new):
                await self._start(slot, kernel, state, new)
        self._feed.tell(Change(notebook=new))
        made = await self._notebooks.get(new.owner, name)
        return replace(made, seen_as=f"{made.owner}/{name}") if notebook.seen_as else made

    async def _start(self, slot: KernelSlot, kernel: Kernel, state: str | Snapshot, new: Notebook) -> None:
        run = new.origin.run if new.origin is not None else None
        if isinstance(state, Snapshot):
            report = report_of(state)
            branched = await self._kernels.start_from_snapshot(new, state)
            slot.lineage.steps.update(await self._resolver.list_steps(slot.notebook, run))
        else:
            report = kernel.checkpoints[state] if state != START else slot.lineage.start
            branched = await kernel.branch(state, self._kernels.runtimes.spec(new))
        try:
            await self._notebooks.add(new)
            cells = await self._cells.list_cells(slot.notebook)
            await self._cells.add_all(new, copied_cells(cells, slot.lineage, run))
            await self._kernels.slots.reserve(new)
            self._kernels.slots.get(new).adopt(branched, report)
        except BaseException:
            await branched.close()
            raise


def _derive(notebook: Notebook, name: str, state: str | Snapshot) -> Notebook:
    run = state.run if isinstance(state, Snapshot) else RunId(state) if state != START else None
    root = notebook.origin.root if notebook.origin else notebook.id
    return replace(
        notebook,
        id=NotebookId(uuid4().hex),
        name=name,
        created_at=time.time(),
        runs=0,
        cells=0,
        origin=Origin(notebook=notebook.id, run=run, root=root),
        mirror="",
        seen_as="",
    )


def copied_cells(cells: list[Cell], lineage: RunLineage, run: RunId | None) -> list[NewCell]:
    """Copies of the cells for a branch at `run`, without those whose last run is not one of its ancestors. Pure."""
    ancestors = set(lineage.ancestors(run))
    others = set(lineage.steps) - ancestors
    return [
        NewCell(
            source=cell.source,
            kind=cell.kind,
            metadata=cell.metadata,
            attachments=cell.attachments,
            run=replace(cell.run, id=RunId(uuid4().hex[:12]), parent=None, stale=False) if cell.run else None,
        )
        for cell in cells
        if cell.run is None
        or cell.run.id in ancestors
        or not (cell.run.stale or {cell.run.id, cell.run.parent} & others)
    ]
