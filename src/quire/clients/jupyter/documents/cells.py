"""Cells as nbformat writes them: made whole, named, and put into order. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.ports import JupyterError, NbCell, NbOutput

KINDS = ("code", "markdown", "raw")
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def whole(cell: NbCell, taken: Collection[str]) -> NbCell:
    """With all that a cell has; its id kept where it is a right one and free."""
    kind = cell.get("cell_type", "code")
    if kind not in KINDS:
        raise JupyterError(f"{kind!r} is no kind of cell; it is one of {', '.join(KINDS)}.")
    given = cell.get("id")
    name = given if isinstance(given, str) and ID.fullmatch(given) and given not in taken else str(uuid4())
    made: NbCell = {
        "cell_type": kind,
        "id": name,
        "metadata": dict(cell.get("metadata") or {}),
        "source": joined(cell.get("source", "")),
    }
    if kind == "code":
        made["outputs"] = [dict(output) for output in cell.get("outputs") or ()]
        made["execution_count"] = cell.get("execution_count")
    elif cell.get("attachments"):
        made["attachments"] = cell["attachments"]
    return made


def all_whole(cells: Sequence[NbCell], taken: Collection[str]) -> list[NbCell]:
    used, made = set(taken), []
    for cell in cells:
        made.append(whole(cell, used))
        used.add(made[-1]["id"])
    return made


def as_kind(cell: NbCell, kind: str) -> NbCell:
    """The same cell as another kind: what that has not is left out."""
    return whole({**cell, "cell_type": kind, "outputs": [], "execution_count": None}, ())


def joined(text: Any) -> str:
    """nbformat allows a text to be a list of lines."""
    return "".join(str(part) for part in text) if isinstance(text, list) else str(text)


def plain_outputs(outputs: Sequence[Any]) -> list[NbOutput]:
    """Copies whose stream texts are one string each."""
    made = []
    for output in outputs:
        copy = dict(output) if isinstance(output, dict) else {}
        if copy.get("output_type") == "stream":
            copy["text"] = joined(copy.get("text", ""))
        made.append(copy)
    return made


def whole_numbers(value: Any) -> Any:
    """Y knows only floating numbers; those that are whole are meant as whole ones."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: whole_numbers(each) for key, each in value.items()}
        case list():
            return [whole_numbers(each) for each in value]
        case _:
            return value


def place_for(at: int, length: int) -> int:
    """From 0 to the end; a negative one counts from there."""
    return max(0, min(at if at >= 0 else length + at + 1, length))
