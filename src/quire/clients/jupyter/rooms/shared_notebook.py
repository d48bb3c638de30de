"""A notebook as a Y document in the shape that Jupyter shares: read it, change it in one transaction, hear of changes.

{"cells": [{id, cell_type, source: Text, metadata: Map, outputs: [Map], execution_count, execution_state}],
 "meta": {nbformat, nbformat_minor, metadata}, "state": {path, dirty, hash}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pycrdt import Array, Doc, Map, Text

from quire.clients.jupyter.documents import cells as plain
from quire.clients.jupyter.documents.text_diff import replacements
from quire.clients.jupyter.documents.versions import Versions
from quire.clients.jupyter.ports import JupyterError, Missing, NbCell, NbOutput
from quire.clients.jupyter.server.paths import below_root

MAX_PATH_CHARS = 4_096


class SharedNotebook:
    """Not to be used by two threads. `heard` is called after each transaction that is not our own."""

    def __init__(self, doc: Doc[Any], versions: Versions, heard: Callable[[], None]) -> None:
        self.doc = doc
        self.versions = versions
        self.saves = 0  # how often the server said that it wrote the file
        self.moved_to = ""  # the path that the server gave the file since; "" where it has the one it was opened by
        self._cells: Any = doc.get("cells", type=Array)
        self._meta: Any = doc.get("meta", type=Map)
        self._state: Any = doc.get("state", type=Map)
        self._heard = heard
        self._ours: list[bytes] | None = None  # updates of the edit under way
        self._read: list[NbCell] | None = None  # the cells as they were read last
        self._stale: set[int] = set()  # the places of those that changed since
        self._order: list[str] | None = None  # their ids, until one comes or goes
        self._look_through()
        self._subscriptions = [
            (self._cells, self._cells.observe_deep(self._cells_changed)),
            (self._state, self._state.observe(self._state_changed)),
            (self.doc, self.doc.observe(self._changed)),
        ]

    def let_go(self) -> None:
        for of, subscription in self._subscriptions:
            of.unobserve(subscription)
        self._subscriptions = []

    # --- reading

    def cells(self) -> list[NbCell]:
        """Only what changed is read anew: a whole document costs milliseconds, and each call asks."""
        if self._ours is not None:  # an edit is under way, of which nothing was heard yet
            return [as_nbformat(each) for each in self._cells.to_py() or ()]
        if self._read is None:
            self._read = [as_nbformat(each) for each in self._cells.to_py() or ()]
        for place in self._stale:
            self._read[place] = as_nbformat(self._cells[place].to_py())
        self._stale.clear()
        return [_copied(each) for each in self._read]

    def cell(self, name: str) -> NbCell | None:
        place = self.find(name)
        return None if place is None else as_nbformat(self._cells[place].to_py())

    def metadata(self) -> dict[str, Any]:
        found = plain.whole_numbers(self._meta.to_py() or {}).get("metadata")
        return found if isinstance(found, dict) else {}

    def ids(self) -> list[str]:
        if self._order is None:
            with self.doc.transaction():
                self._order = [str(each.get("id", "")) for each in self._cells]
        return list(self._order)

    def find(self, name: str) -> int | None:
        ids = self.ids()
        return ids.index(name) if name in ids else None

    def source(self, name: str) -> Text | None:
        """The shared text of a cell's source."""
        place = self.find(name)
        found = None if place is None else self._cells[place].get("source")
        return found if isinstance(found, Text) else None

    def __len__(self) -> int:
        return len(self._cells)

    # --- changing

    @contextmanager
    def edit(self) -> Iterator[list[bytes]]:
        """One transaction; afterwards the list holds what the server is to be sent."""
        updates: list[bytes] = []
        self._ours = updates
        try:
            with self.doc.transaction():
                yield updates
        finally:
            self._ours = None

    def place(self, name: str) -> int:
        found = self.find(name)
        if found is None:
            raise Missing(f"There is no cell {name!r} any more; read the notebook again.")
        return found

    def insert(self, at: int, cells: Sequence[NbCell]) -> None:
        for place, cell in enumerate(cells):
            self._cells.insert(at + place, as_shared(cell))
        self._order = None

    def delete(self, name: str) -> None:
        del self._cells[self.place(name)]
        self._order = None

    def put_in_place(self, at: int, cell: NbCell) -> None:
        """Of the one there: Y cannot move what is, nor can a page follow a change of kind."""
        del self._cells[at]
        self._cells.insert(at, as_shared(cell))
        self._order = None

    def set_source(self, name: str, source: str) -> None:
        text = self._cells[self.place(name)]["source"]
        for each in replacements(str(text), source):
            if each.end > each.start:
                del text[each.start : each.end]
            if each.text:
                text.insert(each.start, each.text)

    def set_metadata(self, name: str, metadata: dict[str, Any]) -> None:
        cell = self._cells[self.place(name)]
        if not isinstance(cell.get("metadata"), Map):
            cell["metadata"] = Map(metadata)
            return
        now, shared = cell["metadata"].to_py() or {}, cell["metadata"]
        for key in now.keys() - metadata.keys():
            del shared[key]
        for key, value in metadata.items():
            if key not in now or now[key] != value:
                shared[key] = value

    def set_run(self, name: str, *, state: str, count: int | None) -> None:
        cell = self._cells[self.place(name)]
        if cell.get("cell_type") == "code":
            cell["execution_state"] = state
            cell["execution_count"] = count

    def set_outputs(self, name: str, outputs: Sequence[NbOutput], start: int = 0) -> None:
        cell = self._cells[self.place(name)]
        if cell.get("cell_type") != "code":
            return
        if not isinstance(cell.get("outputs"), Array):
            cell["outputs"] = Array()
        shared = cell["outputs"]
        start = min(start, len(shared))
        same = 0
        while same < len(outputs) and start + same < len(shared) and grown(shared[start + same], outputs[same]):
            same += 1
        if start + same < len(shared):
            del shared[start + same :]
        for output in outputs[same:]:
            shared.append(shared_output(output))

    # --- hearing

    def _cells_changed(self, events: Any) -> None:
        paths = [event.path for event in events]
        if not all(paths):  # cells came, went or moved
            self._read = self._order = None
            self._stale.clear()
            self._look_through()
            return
        if any(len(event.path) == 1 and "id" in event.keys for event in events):
            self._order = None
        if self._read is not None:
            self._stale.update(path[0] for path in paths)
        for place in {path[0] for path in paths if len(path) < 2 or path[1] == "source"}:
            cell = self._cells[place]
            self.versions.see(str(cell.get("id", "")), str(cell.get("source", "")))

    def _look_through(self) -> None:
        with self.doc.transaction():
            self.versions.see_all({str(each.get("id", "")): str(each.get("source", "")) for each in self._cells})

    def _state_changed(self, event: Any) -> None:
        if "hash" in event.keys or ("dirty" in event.keys and self._state.get("dirty") is False):
            self.saves += 1
        if "path" in event.keys:
            self.moved_to = notebook_path(self._state.get("path")) or self.moved_to

    def _changed(self, event: Any) -> None:
        if self._ours is not None:
            self._ours.append(event.update)
        else:
            self._heard()


def notebook_path(said: Any) -> str:
    """The path of a notebook, as others wrote it into the document; "" for what is none."""
    if not isinstance(said, str) or not said.endswith(".ipynb") or len(said) > MAX_PATH_CHARS:
        return ""
    try:
        return below_root(said)
    except JupyterError:
        return ""


def _copied(cell: NbCell) -> NbCell:
    """Its texts are not copied; what holds them is."""
    copied = {**cell, "metadata": {**cell["metadata"]}}
    if "outputs" in cell:
        copied["outputs"] = [{**output} for output in cell["outputs"]]
    return copied


def as_nbformat(value: Any) -> NbCell:
    cell: NbCell = plain.whole_numbers(value)
    cell.pop("execution_state", None)
    cell.setdefault("cell_type", "raw")
    cell["id"] = str(cell.get("id", ""))
    cell["source"] = plain.joined(cell.get("source", ""))
    cell["metadata"] = cell.get("metadata") or {}
    if cell["cell_type"] == "code":
        cell["outputs"] = plain.plain_outputs(cell.get("outputs") or ())
        cell.setdefault("execution_count", None)
    return cell


def as_shared(cell: NbCell) -> Map[Any]:
    shared: dict[str, Any] = dict(cell)
    shared["source"] = Text(cell["source"])
    shared["metadata"] = Map(cell["metadata"])
    if cell["cell_type"] == "code":
        shared["outputs"] = Array([shared_output(each) for each in cell["outputs"]])
        shared["execution_state"] = "idle"
    return Map(shared)


def shared_output(output: NbOutput) -> Map[Any]:
    shared: dict[str, Any] = dict(output)
    if shared.get("output_type") == "stream":
        shared["text"] = Text(plain.joined(shared.get("text", "")))
    return Map(shared)


def grown(shared: Any, output: NbOutput) -> bool:
    """Whether what is there is this output now: it was, or its text was appended to in place, which a page shows."""
    now = plain.whole_numbers(shared.to_py())
    if now == output:
        return True
    text = shared.get("text")
    if output.get("output_type") != "stream" or now.get("name") != output.get("name") or not isinstance(text, Text):
        return False
    wanted, there = plain.joined(output.get("text", "")), str(text)
    if not wanted.startswith(there):
        return False
    text += wanted[len(there) :]
    return True
