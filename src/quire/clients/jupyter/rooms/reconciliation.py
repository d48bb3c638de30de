"""Decides after a reconnect whether the room continues our replica, and reapplies our changes if it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pycrdt import Array, Doc

from quire.clients.jupyter.ports import NbCell
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook


def has_common_history(local: Doc[Any], remote: Doc[Any]) -> bool:
    """Whether `remote` continues `local`. A document that the server rebuilt from the file does not, even if it looks
    the same and has the same client ids. A continuation gives the same cells when both are merged in either order, and
    no cell twice."""
    local_update, remote_update = local.get_update(), remote.get_update()
    if not client_ids(local.get_state()) & client_ids(remote.get_state()):
        return len(local.get("cells", type=Array)) == 0
    try:
        local_first, remote_first = merge(local_update, remote_update), merge(remote_update, local_update)
    except Exception:  # pycrdt raises various errors for incompatible histories
        return False
    ids = [cell.get("id") for cell in local_first.get("cells", [])]
    return local_first == remote_first and len(set(ids)) == len(ids)


def merge(*updates: bytes) -> dict[str, Any]:
    doc: Doc[Any] = Doc()
    cells = doc.get("cells", type=Array)
    for update in updates:
        doc.apply_update(update)
    return {"cells": cells.to_py() or []}


def client_ids(state: bytes) -> set[int]:
    """The client ids in a state vector, which is a count followed by the id and clock of each client."""
    values, value, shift = [], 0, 0
    for byte in state:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return set(values[1::2])


@dataclass
class OwnChanges:
    """Our changes since the file was last written. The server may lose them when it restarts."""

    sources: dict[str, set[str]] = field(default_factory=dict)  # by cell that we changed: all sources it had since
    inserted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def record_source(self, cell: NbCell) -> None:
        self.sources.setdefault(cell["id"], set()).add(cell["source"])


def reapply(own_changes: OwnChanges, old: list[NbCell], new: SharedNotebook) -> None:
    """Reapply the changes that the server lost, cell by cell, unless others changed the cell since."""
    previous = {cell["id"]: cell for cell in old}
    current = {cell["id"]: cell for cell in new.cells()}
    for cell_id in own_changes.deleted & current.keys():
        if current[cell_id]["source"] in own_changes.sources.get(cell_id, ()):
            new.delete(cell_id)
    order = list(previous)
    for cell_id in order:
        if cell_id in own_changes.inserted and cell_id not in current:
            new.insert(index_after_neighbour(order, cell_id, new.find_index), [previous[cell_id]])
        elif cell_id in current and current[cell_id]["source"] in own_changes.sources.get(cell_id, ()):
            restore_cell(new, current[cell_id], previous[cell_id])


def index_after_neighbour(order: list[str], cell_id: str, find_index: Callable[[str], int | None]) -> int:
    for earlier in reversed(order[: order.index(cell_id)]):
        index = find_index(earlier)
        if index is not None:
            return index + 1
    return 0


def restore_cell(new: SharedNotebook, current: NbCell, target: NbCell) -> None:
    if current["cell_type"] != target["cell_type"]:
        new.replace_cell(new.index_of(target["id"]), target)
        return
    new.set_source(target["id"], target["source"])
    new.set_metadata(target["id"], target["metadata"])
    if target["cell_type"] == "code":
        new.set_outputs(target["id"], target["outputs"])
        new.set_run(target["id"], state="idle", count=target["execution_count"])
