"""Pure functions on cells of nbformat: fill in missing fields, give ids, copy."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.ports import JupyterError, NbCell, NbOutput

CELL_TYPES = ("code", "markdown", "raw")
CELL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def complete_cell(cell: NbCell, taken: Collection[str]) -> NbCell:
    """A cell with every field that nbformat requires. Its id is kept if it is valid and not in `taken`."""
    kind = cell.get("cell_type", "code")
    if kind not in CELL_TYPES:
        raise JupyterError(f"{kind!r} is no kind of cell; it is one of {', '.join(CELL_TYPES)}.")
    cell_id = cell.get("id")
    new_id = (
        cell_id if isinstance(cell_id, str) and CELL_ID.fullmatch(cell_id) and cell_id not in taken else str(uuid4())
    )
    completed: NbCell = {
        "cell_type": kind,
        "id": new_id,
        "metadata": dict(cell.get("metadata") or {}),
        "source": join_text(cell.get("source", "")),
    }
    if kind == "code":
        completed["outputs"] = [dict(output) for output in cell.get("outputs") or ()]
        completed["execution_count"] = cell.get("execution_count")
    elif cell.get("attachments"):
        completed["attachments"] = cell["attachments"]
    return completed


def complete_cells(cells: Sequence[NbCell], taken: Collection[str]) -> list[NbCell]:
    used, completed = set(taken), []
    for cell in cells:
        completed.append(complete_cell(cell, used))
        used.add(completed[-1]["id"])
    return completed


def with_kind(cell: NbCell, kind: str) -> NbCell:
    """The cell converted to another cell type. Fields that the new type does not have are dropped."""
    return complete_cell({**cell, "cell_type": kind, "outputs": [], "execution_count": None}, ())


def join_text(text: Any) -> str:
    """A text as one string; nbformat also allows a list of lines."""
    return "".join(str(part) for part in text) if isinstance(text, list) else str(text)


def copy_outputs(outputs: Sequence[Any]) -> list[NbOutput]:
    """Copies of the outputs, with the text of a stream as one string."""
    copies = []
    for output in outputs:
        copy = dict(output) if isinstance(output, dict) else {}
        if copy.get("output_type") == "stream":
            copy["text"] = join_text(copy.get("text", ""))
        copies.append(copy)
    return copies


def restore_integers(value: Any) -> Any:
    """Convert whole floats to integers: Y documents have floats only."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: restore_integers(item) for key, item in value.items()}
        case list():
            return [restore_integers(item) for item in value]
        case _:
            return value


def clamp_index(at: int, length: int) -> int:
    """An index from 0 to `length`. A negative one counts from the end."""
    return max(0, min(at if at >= 0 else length + at + 1, length))


def copy_cell(cell: NbCell) -> NbCell:
    """A copy of the cell and its containers; strings are shared."""
    copy = {**cell, "metadata": dict(cell["metadata"])}
    if "outputs" in cell:
        copy["outputs"] = [dict(output) for output in cell["outputs"]]
    return copy
