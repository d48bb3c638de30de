"""Sentences about what was restored from disk, and what was not. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable

from quire.core.checkpoints.restorer import RestoredState
from quire.core.model import Cell, Loss
from quire.core.phrases import count

_MAX_NAMED = 8  # lost variables


def describe_restore(state: RestoredState, replay: str = "never") -> str:
    where = f"as after cell {state.cell.number}" if state.cell is not None else "as it was"
    saved = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(state.snapshot.created_at))
    restored = f"{count(state.variables, 'variable')}, {state.seconds:.2g} s"
    sentences = [*state.damaged, f"Restored from disk, {where} (saved {saved} UTC): {restored}."]
    if state.lost:
        sentences.append(f"Not restored: {describe_lost(state.lost)}.")
    if state.after:
        sentences.append(f"Ran after it was saved, not in it: {_cells(state.after)}.")
    sentences += [note if note.endswith(".") else f"{note}." for note in state.notes]
    if state.again and replay == "ask":
        sentences.append(f"To have what is missing, run again: {_cells(state.again)}.")
    return " ".join(sentences)


def describe_lost(losses: Iterable[tuple[Loss, Cell | None]]) -> str:
    """Each lost variable with the reason, and the cell that makes it again."""
    texts = [_describe_loss(loss, cell) for loss, cell in losses]
    more = f", and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    return ", ".join(texts[:_MAX_NAMED]) + more


def _describe_loss(loss: Loss, cell: Cell | None) -> str:
    maker = f"; cell {cell.number} makes it" if cell is not None else ""
    return f"{loss.name} ({loss.what}: {loss.why}{maker})"


def _cells(cells: Iterable[Cell]) -> str:
    numbers = sorted({cell.number for cell in cells})
    return f"cell{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
