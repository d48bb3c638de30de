"""The port RunStore for cells that are in documents: runs are in memory, their outputs in the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quire.clients.jupyter.ports import Missing
from quire.core.model import Cell, CellId, CellState, NewCell, NotebookId, Output, OutputType, Run, RunId
from quire.core.ports.store import Blobs
from quire.notebook_format import ipynb
from quire.stores.document_cells import DocumentCells, load_outputs
from quire.stores.document_run_log import DocumentRunLog
from quire.stores.documents import JupyterDocuments


class DocumentRuns:
    """A run that its server did not end is not found again: `mark_interrupted_runs` is missing."""

    def __init__(self, documents: JupyterDocuments, cells: DocumentCells, blobs: Blobs) -> None:
        self._documents = documents
        self._cells = cells
        self._blobs = blobs

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        if isinstance(cell, NewCell):
            cell = (await self._cells.add_cells(notebook, [cell], at=None, limit=limit))[0]
        begun = await self._cells.get_cell(notebook, cell.id)
        async with self._documents.open(notebook) as (log, document):
            log.max_count += 1
            run = replace(run, cell=cell.id, count=log.max_count)
            await document.begin_run(cell.id)
            log.put_run(run)
            log.last_runs[cell.id] = run.id
            log.outputs_so_far[run.id] = {}
        return replace(begun, run=run, behind=False)

    async def save_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        log = self._documents.log(notebook)
        so_far, found = log.outputs_so_far.get(run), log.find_run(run)
        if so_far is None or found is None:
            return
        first = min((*outputs, *([dropped.start] if dropped else [])), default=None)
        so_far.update(outputs)
        for number in dropped:
            so_far.pop(number, None)
        if first is None:
            return
        shown = [so_far[number] for number in sorted(so_far)]
        unchanged = _count_unchanged(shown, sum(number < first for number in so_far))
        async with self._documents.open(notebook) as (_, document):
            new = ipynb.as_outputs(await load_outputs(self._blobs, shown[unchanged:]), found)
            await document.set_outputs(found.cell, new, start=_count_joined(shown[:unchanged]))

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        log = self._documents.log(notebook)
        was_active = log.outputs_so_far.pop(run.id, None) is not None
        log.put_run(run)
        if log.last_runs.get(run.cell) != run.id or (not was_active and not await self._is_shown(log, run)):
            return  # the cell ran again since
        count = run.count if run.state is not CellState.CRASHED else None
        async with self._documents.open(notebook) as (_, document):
            try:
                await document.set_outputs(
                    run.cell, ipynb.as_outputs(await load_outputs(self._blobs, run.outputs), run)
                )
                await document.end_run(run.cell, count)
            except Missing:  # the cell was deleted meanwhile
                return
            log.saved_counts[run.cell] = count
            log.max_count = max(log.max_count, run.count)
            self._documents.save_soon(log)

    async def _is_shown(self, log: DocumentRunLog, run: Run) -> bool:
        found = await self._cells.find_cell(log.notebook.id, run.cell)
        return found is not None and found.run is not None and found.run.id == run.id

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        async with self._documents.open(notebook) as (log, document):
            await document.begin_run(cell)
            await document.end_run(cell, None)
            log.last_runs.pop(cell, None)
            self._documents.save_soon(log)

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        log = self._documents.log(notebook)
        for run in [run for run in log.runs if run.id in marks]:
            log.put_run(replace(run, stale=marks[run.id]))

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        return self._documents.log(notebook).find_run(run)

    async def list_run_summaries(self, notebook: NotebookId) -> list[Run]:
        return list(self._documents.log(notebook).runs)

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        return list(self._documents.log(notebook).runs)

    async def find_runs_by_display_id(self, notebook: NotebookId, display_id: str) -> list[Run]:
        ended = [run for run in self._documents.log(notebook).runs if run.state is not CellState.RUNNING]
        return [run for run in ended if any(output.display_id == display_id for output in run.outputs)]


def _count_unchanged(shown: list[Output], count: int) -> int:
    """Return how many of the first `count` outputs stay as they are: not the pieces of a stream that goes on."""
    while 0 < count < len(shown) and _is_continued(shown[count - 1], shown[count]):
        count -= 1
    return count


def _count_joined(shown: list[Output]) -> int:
    """Return the number of outputs in a document, which joins pieces of one stream."""
    return sum(not index or not _is_continued(shown[index - 1], output) for index, output in enumerate(shown))


def _is_continued(before: Output, after: Output) -> bool:
    return before.type is after.type is OutputType.STREAM and before.name == after.name
