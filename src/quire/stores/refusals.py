"""Errors and error messages that several stores share."""

from __future__ import annotations

from quire.core.errors import InvalidRequest, OverLimit, VersionConflict
from quire.core.model import Cell
from quire.core.phrases import count
from quire.core.runs.model_text import escape_control_characters


def name_taken(name: str) -> str:
    return f"There is a notebook called {name!r} already. Use it (use_notebook), or choose another name."


def too_many_notebooks(limit: int) -> OverLimit:
    return OverLimit(
        f"No notebook was created: a user may have {limit:,} (setting limits.max_notebooks_per_user).",
        agent="Use an existing one (list_notebooks); clear_notebook deletes cells that are not needed.",
        person="Use an existing one; `quire list` shows them.",
    )


def too_many_cells(cells: int, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"The notebook has {count(cells, 'cell')} and may have {limit:,} (setting limits.max_cells).",
        agent="Delete cells (delete_cell, clear_notebook), or use a new notebook (create_notebook).",
        person="Use another notebook: `quire exec --notebook NAME`.",
    )


def no_such_place(at: int, last: int) -> str:
    return f"There is no place {at} in this notebook: places go from 0 to {last}. Nothing was changed."


def cell_gone(cell: str) -> str:
    return f"Cell {cell} is no longer in the notebook; list_cells shows what is."


def blob_gone(digest: str) -> str:
    return f"The bytes of this output ({digest[:12]}) are gone or damaged. Run the cell again."


def check_version(cell: Cell, expected: int | None) -> None:
    if expected is not None and expected != cell.version:
        raise VersionConflict(edited_meanwhile(cell.number, cell.version, expected, cell.source))


def edited_meanwhile(number: int, version: int, expected: int, source: str) -> str:
    return (
        f"Cell {number} is at version {version}, not {expected}: it was edited meanwhile. "
        f"Nothing was changed. Its source now:\n{escape_control_characters(source)}"
    )
