"""The runs of a document's cells, in memory while Quire runs. Only the document is saved."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from quire.core.model import Cell, CellId, CellState, DocumentLocation, NewCell, Notebook, Output, Run, RunId
from quire.notebook_format.ipynb_reader import Reader

_MAX_RUNS = 1_000
_SPARE_CELLS = 100  # cached beside twice those that the document has
_CELL_KEYS = ("cell_type", "id", "metadata", "source", "outputs", "execution_count", "attachments")


@dataclass
class DocumentRunLog:
    """What is known of one notebook whose cells are in a document."""

    notebook: Notebook
    location: DocumentLocation  # of the document now
    old_locations: list[DocumentLocation] = field(default_factory=list)  # before its file was renamed
    runs: deque[Run] = field(default_factory=lambda: deque(maxlen=_MAX_RUNS))
    last_runs: dict[CellId, RunId] = field(default_factory=dict)  # Quire's last run of each cell
    saved_counts: dict[CellId, int | None] = field(default_factory=dict)  # the count that this run left in the document
    outputs_so_far: dict[RunId, dict[int, Output]] = field(default_factory=dict)  # of active runs, by number
    max_count: int = 0
    cell_count: int = 0  # when last read
    is_watched: bool = False
    _cell_cache: dict[str, tuple[dict[str, Any], NewCell]] = field(default_factory=dict)

    def find_run(self, id_: RunId) -> Run | None:
        return next((run for run in reversed(self.runs) if run.id == id_), None)

    def put_run(self, new: Run) -> None:
        """Add a run, or replace the one with its id."""
        for index, run in enumerate(self.runs):
            if run.id == new.id:
                self.runs[index] = new
                return
        self.runs.append(new)

    def to_cell(self, number: int, source: dict[str, Any], version: int) -> Cell:
        """Return a document's cell, with Quire's own run if the cell shows its outputs."""
        id_ = CellId(str(source.get("id", "")))
        read = self._read_cell(number, id_, source)
        run = self._own_run(id_, source)
        if run is None and read.run is not None:
            run = replace(read.run, id=RunId(f"shown-{id_}"), cell=id_)
            self.max_count = max(self.max_count, run.count)
        is_behind = run is not None and run.author != "import" and run.source != read.source
        return replace(read.to_cell(id_, number, run), version=version, behind=is_behind)

    def _read_cell(self, number: int, id_: str, source: dict[str, Any]) -> NewCell:
        """Cached, because cells are read far more often than they change."""
        cached_source, cell = self._cell_cache.get(id_, (None, None))
        if cell is None or cached_source != source:
            cell = Reader(5).cell(number, {key: source[key] for key in _CELL_KEYS if key in source})
            if len(self._cell_cache) > 2 * self.cell_count + _SPARE_CELLS:  # most of them are of deleted cells
                self._cell_cache.clear()
            self._cell_cache[id_] = source, cell
        return cell

    def _own_run(self, cell: CellId, source: dict[str, Any]) -> Run | None:
        """Return Quire's last run of the cell; None if another program ran the cell or cleared its outputs since."""
        run = self.find_run(self.last_runs[cell]) if cell in self.last_runs else None
        if run is None or run.state is CellState.RUNNING:
            return run
        has_same_count = source.get("execution_count") == self.saved_counts.get(cell)
        return run if has_same_count and bool(source.get("outputs")) == bool(run.outputs) else None
