"""Two replicas of one notebook meet again: whether they have a history in common, and what is carried over if not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pycrdt import Array, Doc

from quire.clients.jupyter.ports import NbCell
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook


def same_history(ours: Doc[Any], theirs: Doc[Any]) -> bool:
    """A document that the server built anew from the file is not a continuation of ours, though it looks like one and
    may even use the same numbers. A continuation, merged with ours in either order, gives the same, no cell twice."""
    mine, other = ours.get_update(), theirs.get_update()
    if not authors(ours.get_state()) & authors(theirs.get_state()):
        return len(ours.get("cells", type=Array)) == 0
    try:
        one, two = merged(mine, other), merged(other, mine)
    except Exception:  # pycrdt raises what it likes for histories that exclude each other
        return False
    ids = [each.get("id") for each in one.get("cells", [])]
    return one == two and len(set(ids)) == len(ids)


def merged(*updates: bytes) -> dict[str, Any]:
    doc: Doc[Any] = Doc()
    cells = doc.get("cells", type=Array)
    for update in updates:
        doc.apply_update(update)
    return {"cells": cells.to_py() or []}


def authors(state: bytes) -> set[int]:
    """The clients in a state vector: a count, then client and clock of each."""
    numbers, value, shift = [], 0, 0
    for byte in state:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    return set(numbers[1::2])


@dataclass
class Own:
    """What we did since the file was last surely written: it is all that could be lost with the server's memory."""

    sources: dict[str, set[str]] = field(default_factory=dict)  # of each cell we touched, those it had meanwhile
    inserted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def touch(self, cell: NbCell) -> None:
        self.sources.setdefault(cell["id"], set()).add(cell["source"])


def carry_over(own: Own, old: list[NbCell], new: SharedNotebook) -> None:
    """Do again what the server forgot of ours, cell by cell, and only where nobody else changed the cell since."""
    before = {cell["id"]: cell for cell in old}
    now = {cell["id"]: cell for cell in new.cells()}
    for name in own.deleted & now.keys():
        if now[name]["source"] in own.sources.get(name, ()):
            new.delete(name)
    order = list(before)
    for name in order:
        if name in own.inserted and name not in now:
            new.insert(after_its_neighbour(order, name, new.find), [before[name]])
        elif name in own.sources and name in now and now[name]["source"] in own.sources[name]:
            bring_up_to(new, now[name], before[name])


def after_its_neighbour(order: list[str], name: str, find: Callable[[str], int | None]) -> int:
    for earlier in reversed(order[: order.index(name)]):
        place = find(earlier)
        if place is not None:
            return place + 1
    return 0


def bring_up_to(new: SharedNotebook, now: NbCell, wanted: NbCell) -> None:
    if now["cell_type"] != wanted["cell_type"]:
        new.put_in_place(new.place(wanted["id"]), wanted)
        return
    new.set_source(wanted["id"], wanted["source"])
    new.set_metadata(wanted["id"], wanted["metadata"])
    if wanted["cell_type"] == "code":
        new.set_outputs(wanted["id"], wanted["outputs"])
        new.set_run(wanted["id"], state="idle", count=wanted["execution_count"])
