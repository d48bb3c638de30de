"""Stepping back and branching off: a notebook's checkpoints, and the tree its runs make."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from quire.core.errors import Failed, NotFound, QuireError, Refused
from quire.core.feed import Change, Feed
from quire.core.kernels import Kernels, Slot
from quire.core.limits import check_name
from quire.core.line import Line
from quire.core.model import Cell, Census, NewCell, Notebook, NotebookId, Origin, RunId
from quire.core.notebooks import Notebooks
from quire.core.ports import START, Kernel, Store
from quire.core.tasks import background

_BEFORE = "before "
_CELL = "cell "


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The namespace as it was after a run."""

    run: RunId
    count: int
    cell: Cell | None  # None where it was deleted since
    census: Census
    size: int  # bytes that dropping it would free
    names: tuple[str, ...]
    current: bool  # the namespace stands here
    stale: bool  # on a line that was rolled back


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What a crash would cost now."""

    quality: str  # clean, degraded, hostile; none where there is no checkpoint of the newest state; or no kernel
    run: int | None = None  # up to which run it protects, or since which it does not: its count
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Where a rollback went to, and which cells it left behind."""

    run: RunId | None  # None: as the kernel began
    cell: Cell | None
    stale: tuple[int, ...]  # numbers of cells whose outputs are from a state that is no more
    lost: tuple[str, ...]  # what did not come back
    already: bool = False  # it stood there


class Timeline:
    def __init__(
        self,
        store: Store,
        kernels: Kernels,
        notebooks: Notebooks,
        feed: Feed,
        later: Callable[..., object],
    ) -> None:
        """`later` has something done when the answer is given."""
        self._later = later
        self._store = store
        self._kernels = kernels
        self._notebooks = notebooks
        self._feed = feed

    async def checkpoints(self, notebook: Notebook) -> list[Checkpoint]:
        """Those there are, oldest first."""
        if not self._kernels.busy(notebook):
            async with self._kernels.turn(notebook) as slot:  # the one of the last run is taken by now
                await self._kernels.settle(notebook, slot)
        kernel, line = self._kernels.live(notebook), self._kernels.line(notebook)
        if kernel is None or line is None:
            return []
        sizes = await kernel.sizes()
        named = self._kernels.named(notebook)
        way = set(line.way(line.head))
        return [
            Checkpoint(
                run=run,
                count=line.steps[run].count,
                cell=await self._store.find_cell(notebook.id, line.steps[run].cell),
                census=census,
                size=sizes.get(run, 0),
                names=tuple(name for name, of in named.items() if of == run),
                current=run == line.head,
                stale=run not in way,
            )
            for run, census in sorted(
                ((RunId(name), census) for name, census in kernel.checkpoints.items() if name in line.steps),
                key=lambda each: line.steps[each[0]].count,
            )
        ]

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
        check_name(name)
        async with self._kernels.turn(notebook) as slot:
            kernel = await self._kernel(notebook, slot)
            await self._at(slot, kernel, None)
            if slot.line.head is None:
                raise Refused("No cell has run yet: there is nothing to keep.")
            slot.named[name] = slot.line.head
            return slot.line.head

    async def rollback(self, notebook: Notebook, to: str | int) -> Moved:
        """Put the namespace back to where `to` says; later cells are stale, their outputs stay."""
        self._refuse_while_busy(notebook)
        async with self._kernels.turn(notebook) as slot:
            kernel = await self._kernel(notebook, slot)
            name = await self._place(notebook, slot, kernel, to)
            line = slot.line
            already = name == (line.head or START)
            census = kernel.checkpoints[name] if name != START else line.start
            if not already:
                unmarked: list[QuireError] = []
                async with background(wait=True) as group:
                    group.start_soon(self._mark, notebook, line.stale(name), unmarked)
                    await self._restore(notebook, slot, kernel, name)
                line.move(name)
                if unmarked:
                    raise Failed(f"The namespace was rolled back, but cells were not marked stale: {unmarked[0]}")
            moved = await self._moved(notebook, line, census, already)
        self._later(self._kernels.protect, notebook)  # the checkpoint it stands at was used up
        self._feed.tell(Change(notebook=notebook))
        return moved

    async def branch(self, notebook: Notebook, name: str, at: str | int | None = None) -> Notebook:
        """A new notebook with the namespace as it was there and the cells that led to it; this one goes on."""
        check_name(name)
        self._refuse_while_busy(notebook)
        if await self._store.find_notebook(notebook.owner, name) is not None:
            raise Refused(f"There is a notebook {name!r} already. Choose another name.")
        async with self._kernels.turn(notebook) as slot:
            kernel = await self._kernel(notebook, slot)
            point = await self._at(slot, kernel, None if at is None else await self._place(notebook, slot, kernel, at))
            run = RunId(point) if point != START else None
            root = notebook.origin.root if notebook.origin else notebook.id
            new = replace(
                notebook,
                id=NotebookId(uuid4().hex),
                name=name,
                created_at=time.time(),
                runs=0,
                cells=0,
                origin=Origin(notebook=notebook.id, run=run, root=root),
            )
            census = kernel.checkpoints[point] if point != START else slot.line.start
            branched = await kernel.branch(point, self._kernels.spec(new))
            try:
                await self._store.create_notebook(new)
                cells = await self._led_to(notebook, slot.line, run)
                await self._notebooks.add_cells(new, cells)
                self._kernels.place(new, branched, census)
            except BaseException:
                await branched.close()
                raise
        return await self._notebooks.named(new.owner, name)

    def _refuse_while_busy(self, notebook: Notebook) -> None:
        if self._kernels.busy(notebook):
            raise Refused(
                f"A cell of notebook {notebook.name!r} runs or waits. Let it end, or call interrupt; then call again."
            )

    async def _kernel(self, notebook: Notebook, slot: Slot) -> Kernel:
        await self._kernels.settle(notebook, slot)
        if slot.kernel is None or not slot.kernel.alive:
            raise Refused(
                f"Notebook {notebook.name!r} has no live kernel, so there is no earlier state of it to go to: "
                "checkpoints end with the kernel. Run its cells again."
            )
        return slot.kernel

    async def _mark(self, notebook: Notebook, marks: dict[RunId, bool], failed: list[QuireError]) -> None:
        try:
            await self._store.mark_stale(notebook.id, marks)
        except QuireError as error:
            failed.append(error)

    async def _restore(self, notebook: Notebook, slot: Slot, kernel: Kernel, name: str) -> None:
        """To this checkpoint; where it does not wake, to where the namespace stood."""
        try:
            await kernel.restore(name)
        except Failed as error:
            await self._store.mark_stale(notebook.id, slot.line.stale(slot.line.head or START))
            recovered = await self._kernels.revive(notebook, slot)
            slot.notice = ""
            if recovered is not None and not recovered.restored:
                raise
            lost = f" but for the last {len(recovered.lost)}" if recovered is not None and recovered.lost else ""
            raise Failed(f"{error} The namespace is as it was before this call{lost}.") from error

    async def _at(self, slot: Slot, kernel: Kernel, point: str | None) -> str:
        """The checkpoint meant; of where the namespace stands now one is taken if there is none yet."""
        if point is not None:
            return point
        head = slot.line.head
        if head is not None and head not in kernel.checkpoints:
            taken = await kernel.checkpoint(head)
            if isinstance(taken, str):
                raise Failed(f"No checkpoint of the namespace can be taken: {taken}.")
            slot.line.protected(taken)
        return head or START

    async def _place(self, notebook: Notebook, slot: Slot, kernel: Kernel, to: str | int) -> str:
        """The checkpoint that a name, a cell or `before` a cell means. Raises where it is not there."""
        text = str(to).strip()
        if text in slot.named:
            text = slot.named[text]
        if text == "start" or text in kernel.checkpoints:
            return START if text == "start" else text
        before = text.startswith(_BEFORE)
        cell = await self._notebooks.cell(notebook, text.removeprefix(_BEFORE).removeprefix(_CELL))
        if cell.run is None:
            raise Refused(f"Cell {cell.number} has not run: there is no state {'before' if before else 'after'} it.")
        name = slot.line.around(cell.run.id, before=before)
        if name is None or (name != START and name not in kernel.checkpoints):
            raise NotFound(await self._not_kept(notebook, slot.line, kernel, cell))
        return name

    async def _not_kept(self, notebook: Notebook, line: Line, kernel: Kernel, cell: Cell) -> str:
        kept = [line.steps[RunId(name)].cell for name in kernel.checkpoints if name in line.steps]
        cells = [await self._store.find_cell(notebook.id, each) for each in kept]
        numbers = sorted({cell.number for cell in cells if cell is not None})
        there = f"There are checkpoints after cells {', '.join(map(str, numbers))}" if numbers else "There is none"
        return (
            f"That state of cell {cell.number} is not kept: old checkpoints are dropped when memory is needed, and "
            f"none outlives its kernel or goes into a branch. {there}, and `start`. Nothing was changed."
        )

    async def _moved(self, notebook: Notebook, line: Line, census: Census, already: bool) -> Moved:
        cells = await self._store.list_cells(notebook.id, 0, None)
        head = line.head
        return Moved(
            run=head,
            cell=next((cell for cell in cells if head is not None and cell.id == line.steps[head].cell), None),
            stale=tuple(cell.number for cell in cells if cell.run is not None and cell.run.stale),
            lost=census.lost if not already else (),
            already=already,
        )

    async def _led_to(self, notebook: Notebook, line: Line, run: RunId | None) -> list[NewCell]:
        """Copies of the cells, without those whose last run came after that point or on another line."""
        off = set(line.steps) - set(line.way(run))
        return [
            NewCell(
                source=cell.source,
                kind=cell.kind,
                metadata=cell.metadata,
                run=replace(cell.run, id=RunId(uuid4().hex[:12]), parent=None) if cell.run is not None else None,
            )
            for cell in await self._store.list_cells(notebook.id, 0, None)
            if cell.run is None or not (cell.run.stale or {cell.run.id, cell.run.parent} & off)
        ]
