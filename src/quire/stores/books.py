"""What is remembered of a document's runs while Quire runs: the document itself is what is kept."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from quire.core.model import Cell, CellId, CellState, DocumentLocation, NewCell, Notebook, Output, Run, RunId
from quire.notebook_format.ipynb_reader import Reader

_RUNS = 1_000  # of the journal
_SPARE = 100  # cells that are remembered beside twice those there are
_KEYS = ("cell_type", "id", "metadata", "source", "outputs", "execution_count", "attachments")


@dataclass
class Book:
    """One notebook whose cells are a document's."""

    notebook: Notebook
    place: DocumentLocation  # where the document is now
    journal: deque[Run] = field(default_factory=lambda: deque(maxlen=_RUNS))
    last: dict[CellId, RunId] = field(default_factory=dict)  # our last run of each cell
    marks: dict[CellId, int | None] = field(default_factory=dict)  # the count that it left there
    shown: dict[RunId, dict[int, Output]] = field(default_factory=dict)  # by runs under way, at their places
    count: int = 0  # the largest known
    cells: int = 0  # when last seen
    watching: bool = False
    places: list[DocumentLocation] = field(default_factory=list)  # where it was before a person renamed it
    _reads: dict[str, tuple[dict[str, Any], NewCell]] = field(default_factory=dict)  # cells as last read

    def run(self, run: RunId) -> Run | None:
        return next((each for each in reversed(self.journal) if each.id == run), None)

    def put(self, run: Run) -> None:
        """In place of what is known of it."""
        for place, each in enumerate(self.journal):
            if each.id == run.id:
                self.journal[place] = run
                return
        self.journal.append(run)

    def cell(self, number: int, given: dict[str, Any], version: int) -> Cell:
        """A document's cell, with our own run of it where that is what it shows."""
        id_ = CellId(str(given.get("id", "")))
        read = self._read(number, id_, given)
        run = self._ours(id_, given)
        if run is None and read.run is not None:
            run = replace(read.run, id=RunId(f"shown-{id_}"), cell=id_)
            self.count = max(self.count, run.count)
        return Cell(
            id=id_,
            number=number,
            kind=read.kind,
            source=read.source,
            version=version,
            run=run,
            metadata=read.metadata,
            attachments=read.attachments,
            behind=run is not None and run.author != "import" and run.source != read.source,
        )

    def _read(self, number: int, id_: str, given: dict[str, Any]) -> NewCell:
        """As it was read before, where it is as it was: a document is asked for far more often than it changes."""
        before, read = self._reads.get(id_, (None, None))
        if read is None or before != given:
            read = Reader(5).cell(number, {key: given[key] for key in _KEYS if key in given})
            if len(self._reads) > 2 * self.cells + _SPARE:  # most of them are deleted since
                self._reads.clear()
            self._reads[id_] = given, read
        return read

    def _ours(self, cell: CellId, given: dict[str, Any]) -> Run | None:
        run = self.run(self.last[cell]) if cell in self.last else None
        if run is None or run.state is CellState.RUNNING:
            return run
        same = given.get("execution_count") == self.marks.get(cell) and bool(given.get("outputs")) == bool(run.outputs)
        return run if same else None  # else somebody else ran it since, or cleared it
