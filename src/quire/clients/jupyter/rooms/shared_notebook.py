"""Reads and changes a notebook in a Y document with Jupyter's structure:

{"cells": [{id, cell_type, source: Text, metadata: Map, outputs: [Map], execution_count, execution_state}],
 "meta": {nbformat, nbformat_minor, metadata}, "state": {path, dirty, hash}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pycrdt import Array, Doc, Map, Text

from quire.clients.jupyter.documents.cells import copy_cell, copy_outputs, join_text, restore_integers
from quire.clients.jupyter.documents.text_diff import find_replacements
from quire.clients.jupyter.documents.versions import SourceVersions
from quire.clients.jupyter.ports import JupyterError, Missing, NbCell, NbOutput
from quire.clients.jupyter.server.paths import normalize_path

MAX_PATH_CHARS = 4_096


class SharedNotebook:
    """Not thread-safe. `on_change` is called after each transaction of others."""

    def __init__(self, doc: Doc[Any], versions: SourceVersions, on_change: Callable[[], None]) -> None:
        self.doc = doc
        self.versions = versions
        self.save_count = 0  # how often the server reported that it wrote the file
        self.new_path = ""  # set when the file was renamed
        self._cells: Any = doc.get("cells", type=Array)
        self._meta: Any = doc.get("meta", type=Map)
        self._state: Any = doc.get("state", type=Map)
        self._on_change = on_change
        self._edit_updates: list[bytes] | None = None  # updates of the current edit
        self._cached_cells: list[NbCell] | None = None  # the cells read last
        self._changed_indexes: set[int] = set()  # cells that changed since
        self._cell_ids: list[str] | None = None  # None after cells were added or removed
        self._record_versions()
        self._subscriptions = [
            (self._cells, self._cells.observe_deep(self._cells_changed)),
            (self._state, self._state.observe(self._state_changed)),
            (self.doc, self.doc.observe(self._document_changed)),
        ]

    def close(self) -> None:
        for target, subscription in self._subscriptions:
            target.unobserve(subscription)
        self._subscriptions = []

    # --- reading

    def cells(self) -> list[NbCell]:
        """Reads only changed cells again: reading a whole document takes milliseconds, and every call does it."""
        if self._edit_updates is not None:  # observers have not run for the current edit yet
            return [to_nbformat(cell) for cell in self._cells.to_py() or ()]
        if self._cached_cells is None:
            self._cached_cells = [to_nbformat(cell) for cell in self._cells.to_py() or ()]
        for index in self._changed_indexes:
            self._cached_cells[index] = to_nbformat(self._cells[index].to_py())
        self._changed_indexes.clear()
        return [copy_cell(cell) for cell in self._cached_cells]

    def cell(self, cell_id: str) -> NbCell | None:
        index = self.find_index(cell_id)
        return None if index is None else to_nbformat(self._cells[index].to_py())

    def metadata(self) -> dict[str, Any]:
        found = restore_integers(self._meta.to_py() or {}).get("metadata")
        return found if isinstance(found, dict) else {}

    def ids(self) -> list[str]:
        if self._cell_ids is None:
            with self.doc.transaction():
                self._cell_ids = [str(cell.get("id", "")) for cell in self._cells]
        return list(self._cell_ids)

    def find_index(self, cell_id: str) -> int | None:
        ids = self.ids()
        return ids.index(cell_id) if cell_id in ids else None

    def source(self, cell_id: str) -> Text | None:
        """The shared text of a cell's source."""
        index = self.find_index(cell_id)
        found = None if index is None else self._cells[index].get("source")
        return found if isinstance(found, Text) else None

    def __len__(self) -> int:
        return len(self._cells)

    # --- changing

    @contextmanager
    def edit(self) -> Iterator[list[bytes]]:
        """One transaction. Afterwards the list has the updates to send to the server."""
        updates: list[bytes] = []
        self._edit_updates = updates
        try:
            with self.doc.transaction():
                yield updates
        finally:
            self._edit_updates = None

    def index_of(self, cell_id: str) -> int:
        found = self.find_index(cell_id)
        if found is None:
            raise Missing(f"There is no cell {cell_id!r} any more; read the notebook again.")
        return found

    def insert(self, at: int, cells: Sequence[NbCell]) -> None:
        for index, cell in enumerate(cells):
            self._cells.insert(at + index, to_shared(cell))
        self._cell_ids = None

    def delete(self, cell_id: str) -> None:
        del self._cells[self.index_of(cell_id)]
        self._cell_ids = None

    def replace_cell(self, at: int, cell: NbCell) -> None:
        """Replace a cell: a Y array cannot move elements, and pages do not support a change of cell type."""
        del self._cells[at]
        self._cells.insert(at, to_shared(cell))
        self._cell_ids = None

    def set_source(self, cell_id: str, source: str) -> None:
        text = self._cells[self.index_of(cell_id)]["source"]
        for change in find_replacements(str(text), source):
            if change.end > change.start:
                del text[change.start : change.end]
            if change.text:
                text.insert(change.start, change.text)

    def set_metadata(self, cell_id: str, metadata: dict[str, Any]) -> None:
        cell = self._cells[self.index_of(cell_id)]
        if not isinstance(cell.get("metadata"), Map):
            cell["metadata"] = Map(metadata)
            return
        now, shared = cell["metadata"].to_py() or {}, cell["metadata"]
        for key in now.keys() - metadata.keys():
            del shared[key]
        for key, value in metadata.items():
            if key not in now or now[key] != value:
                shared[key] = value

    def set_run(self, cell_id: str, *, state: str, count: int | None) -> None:
        cell = self._cells[self.index_of(cell_id)]
        if cell.get("cell_type") == "code":
            cell["execution_state"] = state
            cell["execution_count"] = count

    def set_outputs(self, cell_id: str, outputs: Sequence[NbOutput], start: int = 0) -> None:
        cell = self._cells[self.index_of(cell_id)]
        if cell.get("cell_type") != "code":
            return
        if not isinstance(cell.get("outputs"), Array):
            cell["outputs"] = Array()
        shared = cell["outputs"]
        start = min(start, len(shared))
        unchanged = 0
        while (
            unchanged < len(outputs)
            and start + unchanged < len(shared)
            and extend_output(shared[start + unchanged], outputs[unchanged])
        ):
            unchanged += 1
        if start + unchanged < len(shared):
            del shared[start + unchanged :]
        for output in outputs[unchanged:]:
            shared.append(to_shared_output(output))

    # --- observing

    def _cells_changed(self, events: Any) -> None:
        paths = [event.path for event in events]
        if not all(paths):  # cells were added, removed or moved
            self._cached_cells = self._cell_ids = None
            self._changed_indexes.clear()
            self._record_versions()
            return
        if any(len(event.path) == 1 and "id" in event.keys for event in events):
            self._cell_ids = None
        if self._cached_cells is not None:
            self._changed_indexes.update(path[0] for path in paths)
        for index in {path[0] for path in paths if len(path) < 2 or path[1] == "source"}:
            cell = self._cells[index]
            self.versions.record(str(cell.get("id", "")), str(cell.get("source", "")))

    def _record_versions(self) -> None:
        with self.doc.transaction():
            self.versions.record_all({str(cell.get("id", "")): str(cell.get("source", "")) for cell in self._cells})

    def _state_changed(self, event: Any) -> None:
        if "hash" in event.keys or ("dirty" in event.keys and self._state.get("dirty") is False):
            self.save_count += 1
        if "path" in event.keys:
            self.new_path = notebook_path(self._state.get("path")) or self.new_path

    def _document_changed(self, event: Any) -> None:
        if self._edit_updates is not None:
            self._edit_updates.append(event.update)
        else:
            self._on_change()


def notebook_path(value: Any) -> str:
    """The normalized path that others wrote into the document; "" if it is invalid."""
    if not isinstance(value, str) or not value.endswith(".ipynb") or len(value) > MAX_PATH_CHARS:
        return ""
    try:
        return normalize_path(value)
    except JupyterError:
        return ""


def to_nbformat(value: Any) -> NbCell:
    cell: NbCell = restore_integers(value)
    cell.pop("execution_state", None)
    cell.setdefault("cell_type", "raw")
    cell["id"] = str(cell.get("id", ""))
    cell["source"] = join_text(cell.get("source", ""))
    cell["metadata"] = cell.get("metadata") or {}
    if cell["cell_type"] == "code":
        cell["outputs"] = copy_outputs(cell.get("outputs") or ())
        cell.setdefault("execution_count", None)
    return cell


def to_shared(cell: NbCell) -> Map[Any]:
    shared: dict[str, Any] = dict(cell)
    shared["source"] = Text(cell["source"])
    shared["metadata"] = Map(cell["metadata"])
    if cell["cell_type"] == "code":
        shared["outputs"] = Array([to_shared_output(output) for output in cell["outputs"]])
        shared["execution_state"] = "idle"
    return Map(shared)


def to_shared_output(output: NbOutput) -> Map[Any]:
    shared: dict[str, Any] = dict(output)
    if shared.get("output_type") == "stream":
        shared["text"] = Text(join_text(shared.get("text", "")))
    return Map(shared)


def extend_output(shared: Any, output: NbOutput) -> bool:
    """Whether the shared output equals `output` now. Text that only grew is appended in place, which pages display
    without drawing the output again."""
    now = restore_integers(shared.to_py())
    if now == output:
        return True
    text = shared.get("text")
    if output.get("output_type") != "stream" or now.get("name") != output.get("name") or not isinstance(text, Text):
        return False
    text_wanted, text_now = join_text(output.get("text", "")), str(text)
    if not text_wanted.startswith(text_now):
        return False
    text += text_wanted[len(text_now) :]
    return True
