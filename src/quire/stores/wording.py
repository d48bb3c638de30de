"""What every store says and decides alike: refusals, and the fate of a run nobody finished. Pure."""

from __future__ import annotations

from dataclasses import replace

from quire.core import transcript
from quire.core.errors import Stale
from quire.core.model import Cell, CellState, Run


def name_taken(name: str) -> str:
    return f"There is a notebook called {name!r} already. Use it (use_notebook), or choose another name."


def too_many_cells(there: int, limit: int) -> str:
    return (
        f"The notebook has {there:,} cells and may have {limit:,} (setting max_cells). "
        "Delete some, clear_notebook, or go on in a new one (create_notebook)."
    )


def no_such_place(at: int, last: int) -> str:
    return f"There is no place {at} in this notebook: cell_number goes from 0 to {last}. Nothing was changed."


def cell_gone(cell: str) -> str:
    return f"Cell {cell} is no longer in the notebook; list_cells shows what is."


def blob_gone(digest: str) -> str:
    return f"The bytes of this output ({digest[:12]}) are gone or damaged. Run the cell again."


def check_version(cell: Cell, expected: int | None) -> None:
    if expected is not None and expected != cell.version:
        raise Stale(
            f"Cell {cell.number} is at version {cell.version}, not {expected}: it was edited meanwhile. "
            f"Nothing was changed. Its source now:\n{cell.source}"
        )


def unfinished(run: Run) -> Run:
    """A run whose server ended before it did."""
    cause = "The server ended while this cell ran; what it had printed until then was not kept."
    return replace(
        run,
        state=CellState.INTERRUPTED,
        cause=cause,
        outputs=(*run.outputs, transcript.error("Interrupted", cause)),
    )
