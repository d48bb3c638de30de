"""What came back from disk, and what did not, in a line. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable

from quire.core.checkpoints.restorer import RestoredState
from quire.core.model import Cell, Loss

_NAMED = 8  # things lost that one answer names


def describe_restore(back: RestoredState, replay: str = "never") -> str:
    where = f"as after cell {back.cell.number}" if back.cell is not None else "as it was"
    saved = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(back.snapshot.created_at))
    parts = [*back.damaged, f"Restored from disk, {where} (saved {saved} UTC): "]
    parts[-1] += f"{back.variables} variable{'s' * (back.variables != 1)}, {back.seconds:.2g} s."
    if back.lost:
        parts.append(f"Not restored: {describe_lost(back.lost)}.")
    if back.after:
        parts.append(f"Ran after it was saved, not in it: {_cells(back.after)}.")
    parts += [note if note.endswith(".") else f"{note}." for note in back.notes]
    if back.again and replay == "ask":
        parts.append(f"To have what is missing, run again: {_cells(back.again)}.")
    return " ".join(parts)


def describe_lost(things: Iterable[tuple[Loss, Cell | None]]) -> str:
    """Each with why, and the cell that makes it again."""
    said = [_said(loss, cell) for loss, cell in things]
    more = f", and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return ", ".join(said[:_NAMED]) + more


def _said(loss: Loss, cell: Cell | None) -> str:
    made = f"; cell {cell.number} makes it" if cell is not None else ""
    return f"{loss.name} ({loss.what}: {loss.why}{made})"


def _cells(cells: Iterable[Cell]) -> str:
    numbers = sorted({cell.number for cell in cells})
    return f"cell{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
