"""Stepping back and branching off: a notebook's checkpoints, and the tree its runs make."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from uuid import uuid4

from quire.core.checkpoints.restorer import RestoredState, SnapshotNotLoaded, SnapshotRestorer
from quire.core.checkpoints.states import Checkpoint, CheckpointList, fork_report
from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.kernels.lineage import RunLineage, Step
from quire.core.kernels.pool import KernelPool
from quire.core.kernels.slot import KernelLease, KernelSlot
from quire.core.limits.validation import check_name, check_states
from quire.core.model import Cell, NewCell, Notebook, NotebookId, Origin, RunId, Snapshot
from quire.core.notebooks.editing import Notebooks
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background
from quire.core.phrases import existing
from quire.core.ports.kernel import START, Kernel
from quire.core.ports.store import Store

_BEFORE = "before "
_CELL = "cell "
_SHOWN = 100  # characters of a place that is refused


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What a crash would cost now."""

    quality: str  # clean, degraded, hostile; none where there is no checkpoint of the newest state; or no kernel
    run: int | None = None  # up to which run it protects, or since which it does not: its count
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class RollbackResult:
    """Where a rollback went to, and which cells it left behind."""

    run: RunId | None  # None: as the kernel began
    cell: Cell | None
    stale: tuple[int, ...]  # numbers of cells whose outputs are from a state that is no more
    lost: tuple[str, ...]  # what did not come back
    already: bool = False  # it stood there
    back: RestoredState | None = None  # where it came from disk


class Timeline:
    def __init__(
        self,
        store: Store,
        kernels: KernelPool,
        notebooks: Notebooks,
        feed: Feed,
        later: Callable[..., object],
        durable: SnapshotRestorer | None,
    ) -> None:
        """`later` has something done when the answer is given."""
        self._later = later
        self._durable = durable
        self._listing = CheckpointList(store, kernels, durable)
        self._store = store
        self._kernels = kernels
        self._notebooks = notebooks
        self._feed = feed

    async def checkpoints(self, notebook: Notebook) -> list[Checkpoint]:
        """Those there are, oldest first."""
        if not self._kernels.busy(notebook):
            async with self._kernels.turn(notebook) as slot:  # the one of the last run is taken by now
                await self._kernels.settle(notebook, slot)
        return await self._listing.of(notebook)

    async def _snapshots(self, notebook: Notebook) -> list[Snapshot]:
        return await self._durable.of(notebook) if self._durable is not None else []

    def protection(self, notebook: Notebook) -> Protection:
        kernel, line = self._kernels.live(notebook), self._kernels.line(notebook)
        if kernel is None or line is None:
            return Protection(quality="none", why="there is no kernel yet")
        name, since = line.nearest(kernel.checkpoints)
        if since:
            why = line.why or "a checkpoint is being taken"
            return Protection(quality="none", run=line.steps[since[0]].count, why=why)
        census = kernel.checkpoints[name] if name != START else line.start
        count = line.steps[RunId(name)].count if name != START else None
        return Protection(quality=census.quality, run=count, why=", ".join(census.lost))

    async def keep(self, notebook: Notebook, name: str) -> RunId:
        """Give the state the namespace is in a name: it is dropped last, and rollback finds it by it."""
        check_states(notebook)
        check_name(name, what="checkpoint")
        async with self._kernels.turn(notebook) as slot:
            kernel = await self._kernel(notebook, slot)
            await self._at(slot, kernel, None)
            if slot.line.head is None:
                raise InvalidRequest("No cell has run yet: there is nothing to keep.")
            slot.named[name] = slot.line.head
            return slot.line.head

    async def rollback(self, notebook: Notebook, to: str | int) -> RollbackResult:
        """Put the namespace back to where `to` says; later cells are stale, their outputs stay."""
        check_states(notebook)
        self._refuse_while_busy(notebook)
        async with self._kernels.turn(notebook) as slot:
            kernel = await self._kernel(notebook, slot)
            moved = await self._go(notebook, slot, kernel, await self._place(notebook, slot, kernel, to))
            if not moved.already:
                slot.notice = ""  # of where it stood before
        self._later(self._kernels.protect, notebook)  # the checkpoint it stands at was used up
        self._feed.tell(Change(notebook=notebook))
        return moved

    async def restore(self, notebook: Notebook, name: str) -> RollbackResult:
        """Put the namespace back to the state saved under a name."""
        check_states(notebook)
        saved = [each.name for each in await self._snapshots(notebook) if each.name]
        if name not in saved:
            there = existing(name, saved) if saved else "None was saved."
            raise NotFound(
                f"No state of notebook {notebook.name!r} is saved as {name!r}. {there} Nothing was changed.",
                agent="" if saved else "save_state saves one.",
                person="" if saved else "`quire save` saves one.",
            )
        return await self.rollback(notebook, name)

    async def _go(self, notebook: Notebook, slot: KernelSlot, kernel: Kernel, place: str | Snapshot) -> RollbackResult:
        line = slot.line
        if isinstance(place, Snapshot):
            back = await self._load(notebook, slot, kernel, place)
            line.steps.update(back.line.steps)
            name = place.run or START
            unmarked: list[QuireError] = []
            await self._mark(notebook, line.stale(name), unmarked)
            line.move(name)
            self._say_unmarked(unmarked)
            lost = tuple(f"{loss.name} ({loss.what})" for loss, _ in back.lost)
            return await self._moved(notebook, line, lost, back=replace(back, after=()))
        if place == (line.head or START):
            return await self._moved(notebook, line, (), already=True)
        census = kernel.checkpoints[place] if place != START else line.start
        unmarked = []
        async with background(wait=True) as group:
            group.start_soon(self._mark, notebook, line.stale(place), unmarked)
            await self._restore(notebook, slot, kernel, place)
        line.move(place)
        self._say_unmarked(unmarked)
        return await self._moved(notebook, line, census.lost)

    async def _load(self, notebook: Notebook, slot: KernelSlot, kernel: Kernel, snapshot: Snapshot) -> RestoredState:
        """From disk; where that does not load, the namespace is put back to where it stood."""
        assert self._durable is not None
        with contextlib.suppress(OperationFailed):
            await self._at(slot, kernel, None)
        try:
            return await self._durable.load(notebook, kernel, snapshot)
        except SnapshotNotLoaded as error:
            lease = KernelLease(notebook=notebook, kernel=kernel, line=slot.line, durable=self._durable)
            recovered = await lease.recover()
            if not recovered.restored:
                raise
            again = await self._kernels.left_behind(notebook, slot.line, recovered)
            but = f" but for cells {', '.join(map(str, again))}" if again else ""
            raise OperationFailed(f"{error} The namespace is as it was before this call{but}.") from error

    def _say_unmarked(self, failed: list[QuireError]) -> None:
        if failed:
            raise OperationFailed(f"The namespace was rolled back, but cells were not marked stale: {failed[0]}")

    async def branch(self, notebook: Notebook, name: str, at: str | int | None = None) -> Notebook:
        """A new notebook with the namespace as it was there and the cells that led to it; this one goes on."""
        check_states(notebook)
        check_name(name)
        self._refuse_while_busy(notebook)
        if await self._store.find_notebook(notebook.owner, name) is not None:
            raise InvalidRequest(f"There is a notebook {name!r} already. Choose another name.")
        async with self._kernels.turn(notebook) as slot:
            kernel = await self._kernel(notebook, slot)
            place = None if at is None else await self._place(notebook, slot, kernel, at)
            point = place if isinstance(place, Snapshot) else await self._at(slot, kernel, place)
            run = point.run if isinstance(point, Snapshot) else RunId(point) if point != START else None
            root = notebook.origin.root if notebook.origin else notebook.id
            new = replace(
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
            async with self._kernels.one_more(new):
                await self._place_branch(notebook, slot, kernel, point, new)
        self._feed.tell(Change(notebook=new))
        made = await self._notebooks.named(new.owner, name)
        return replace(made, seen_as=f"{made.owner}/{name}") if notebook.seen_as else made

    async def _place_branch(
        self, notebook: Notebook, slot: KernelSlot, kernel: Kernel, point: str | Snapshot, new: Notebook
    ) -> None:
        assert new.origin is not None
        run = new.origin.run
        if isinstance(point, Snapshot):
            census = fork_report(point)
            branched = await self._kernels.begun_with(new, point)
            slot.line.steps.update(await self._steps(notebook, run))
        else:
            census = kernel.checkpoints[point] if point != START else slot.line.start
            branched = await kernel.branch(point, self._kernels.spec(new))
        try:
            await self._notebooks.keep(new)
            await self._notebooks.add_cells(new, await self._led_to(notebook, slot.line, run))
            self._kernels.place(new, branched, census)
        except BaseException:
            await branched.close()
            raise

    def _refuse_while_busy(self, notebook: Notebook) -> None:
        if self._kernels.busy(notebook):
            raise InvalidRequest(
                f"A cell of notebook {notebook.name!r} runs or waits. Let it end, or call interrupt; then call again."
            )

    async def _kernel(self, notebook: Notebook, slot: KernelSlot) -> Kernel:
        await self._kernels.settle(notebook, slot)
        if slot.kernel is None and not await self._snapshots(notebook):
            raise InvalidRequest(
                f"Notebook {notebook.name!r} has no live kernel and no state on disk, so there is no earlier state "
                "of it to go to. Run its cells again."
            )
        notice, _ = await self._kernels.ensure(notebook, slot)
        slot.notice = notice
        assert slot.kernel is not None
        return slot.kernel

    async def _steps(self, notebook: Notebook, run: RunId | None) -> dict[RunId, Step]:
        return await self._durable.steps(notebook, run) if self._durable is not None else {}

    async def _mark(self, notebook: Notebook, marks: dict[RunId, bool], failed: list[QuireError]) -> None:
        try:
            await self._store.mark_stale(notebook.id, marks)
        except QuireError as error:
            failed.append(error)

    async def _restore(self, notebook: Notebook, slot: KernelSlot, kernel: Kernel, name: str) -> None:
        """To this checkpoint; where it does not wake, to where the namespace stood."""
        try:
            await kernel.restore(name)
        except OperationFailed as error:
            await self._store.mark_stale(notebook.id, slot.line.stale(slot.line.head or START))
            recovered = await self._kernels.revive(notebook, slot)
            slot.notice = ""
            if recovered is not None and not recovered.restored:
                raise
            lost = f" but for the last {len(recovered.lost)}" if recovered is not None and recovered.lost else ""
            raise OperationFailed(f"{error} The namespace is as it was before this call{lost}.") from error

    async def _at(self, slot: KernelSlot, kernel: Kernel, point: str | None) -> str:
        """The checkpoint meant; of where the namespace stands now one is taken if there is none yet."""
        head = slot.line.head
        if point is not None and point != head:
            return point
        if head is not None and head not in kernel.checkpoints:
            taken = await kernel.checkpoint(head)
            if isinstance(taken, str):
                raise OperationFailed(f"No checkpoint of the namespace can be taken: {taken}.")
            slot.line.protected(taken)
        return head or START

    async def _place(self, notebook: Notebook, slot: KernelSlot, kernel: Kernel, to: str | int) -> str | Snapshot:
        """The checkpoint that a name, a cell or `before` a cell means: a live one, else one on disk. Raises where it is
        not there."""
        text = str(to).strip()
        if text in slot.named:
            text = slot.named[text]
        snapshots = await self._snapshots(notebook)
        saved = {each.run: each for each in snapshots}
        for each in snapshots:
            if each.name == text:
                return each.run if each.run is not None and each.run in (*kernel.checkpoints, slot.line.head) else each
        if text == "start" or text in kernel.checkpoints:
            return START if text == "start" else text
        if text in saved:
            return saved[RunId(text)]
        before = text.startswith(_BEFORE)
        named = text.removeprefix(_BEFORE).removeprefix(_CELL)
        try:
            cell = await self._notebooks.cell(notebook, named)
        except NotFound as error:
            if re.fullmatch(r"-?\d+", named):  # a cell is meant, and the error says which there are
                raise
            raise NotFound(_no_place(text, [*slot.named, *(each.name for each in snapshots)])) from error
        if cell.run is None:
            raise InvalidRequest(
                f"Cell {cell.number} has not run: there is no state {'before' if before else 'after'} it. Nothing was "
                "changed. list_checkpoints shows the states there are."
            )
        name = slot.line.around(cell.run.id, before=before)
        if name is None and self._durable is not None:  # of another kernel's time
            name = (cell.run.parent or START) if before else cell.run.id
        if name is not None and (name in (START, slot.line.head) or name in kernel.checkpoints):
            return name
        if name is not None and name in saved:
            return saved[RunId(name)]
        raise NotFound(await self._not_kept(notebook, {*kernel.checkpoints, *saved}, cell))

    async def _not_kept(self, notebook: Notebook, kept: Collection[str | None], cell: Cell) -> str:
        runs = [await self._store.find_run(notebook.id, RunId(name)) for name in kept if name is not None]
        cells = [await self._store.find_cell(notebook.id, run.cell) for run in runs if run is not None]
        numbers = sorted({cell.number for cell in cells if cell is not None})
        there = f"There are checkpoints after cells {', '.join(map(str, numbers))}" if numbers else "There is none"
        return (
            f"That state of cell {cell.number} is not kept: old checkpoints are dropped when memory is needed, on disk "
            f"are the newest ten and those that have a name. {there}, and `start`. Nothing was changed."
        )

    async def _moved(
        self,
        notebook: Notebook,
        line: RunLineage,
        lost: tuple[str, ...],
        *,
        already: bool = False,
        back: RestoredState | None = None,
    ) -> RollbackResult:
        cells = await self._store.list_cells(notebook.id, 0, None)
        step = line.steps.get(line.head) if line.head is not None else None
        return RollbackResult(
            run=line.head,
            cell=next((cell for cell in cells if step is not None and cell.id == step.cell), None),
            stale=tuple(cell.number for cell in cells if cell.run is not None and cell.run.stale),
            lost=lost,
            already=already,
            back=back,
        )

    async def _led_to(self, notebook: Notebook, line: RunLineage, run: RunId | None) -> list[NewCell]:
        """Copies of the cells, without those whose last run came after that point or on another line."""
        way = set(line.way(run))
        off = set(line.steps) - way
        return [
            NewCell(
                source=cell.source,
                kind=cell.kind,
                metadata=cell.metadata,
                attachments=cell.attachments,
                run=replace(cell.run, id=RunId(uuid4().hex[:12]), parent=None, stale=False) if cell.run else None,
            )
            for cell in await self._store.list_cells(notebook.id, 0, None)
            if cell.run is None or cell.run.id in way or not (cell.run.stale or {cell.run.id, cell.run.parent} & off)
        ]


def _no_place(text: str, names: list[str]) -> str:
    """What is said of a word that means no state."""
    known = ", ".join(map(repr, dict.fromkeys(filter(None, names))))
    saved = f"the name of a saved state ({known or 'there is none yet'})"
    return (
        f"{text[:_SHOWN]!r} names no state of this notebook. Nothing was changed. Give a cell (its number or id), "
        f'"before" and a cell, as in "before 3", "start", a checkpoint that list_checkpoints shows, or {saved}.'
    )
