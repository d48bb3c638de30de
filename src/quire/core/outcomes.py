"""How a run ended, and the sentences that explain it. Pure."""

from __future__ import annotations

from quire.core.active import Stop
from quire.core.kernels import Recovered
from quire.core.model import CellState, Died
from quire.wire.messages import Finished


def outcome(
    finished: Finished | None, died: Died | None, stopping: Stop | None, timeout: float
) -> tuple[CellState, str]:
    """How a run ended, and the sentence that explains it where its own outputs do not. Pure."""
    if finished is not None:
        match finished.outcome, stopping:
            case "success", _:
                return CellState.SUCCESS, ""
            case _, Stop.TIMEOUT:
                return CellState.TIMEOUT, (
                    f"Stopped after {timeout:g} s, its timeout. Call again with a larger timeout, or do less at once."
                )
            case "interrupted", _:
                return CellState.INTERRUPTED, "Interrupted."
            case _:
                return CellState.ERROR, ""
    match stopping:
        case Stop.TIMEOUT:
            return (
                CellState.TIMEOUT,
                f"It ran past its timeout of {timeout:g} s, did not stop when interrupted, and was killed.",
            )
        case Stop.INTERRUPT:
            return CellState.INTERRUPTED, "It was interrupted, did not stop by itself, and was killed."
        case Stop.SHUTDOWN:
            return CellState.INTERRUPTED, "The server was stopped while it ran."
    reason = died.reason if died else "The kernel is gone."
    hint = f" {died.hint}" if died and died.hint else ""
    return CellState.CRASHED, f"{reason}{hint}"


def restored(recovered: Recovered, lost_cells: list[int]) -> str:
    """What became of the namespace when it was put back to before a run."""
    if not recovered.restored:
        return f"Variables are gone, cells are kept; the next run starts a fresh kernel ({recovered.why})."
    said = "Variables are as they were before this cell."
    if recovered.lost:
        cells = ", ".join(map(str, lost_cells)) or "deleted since"
        said = (
            f"There was no checkpoint of the last {len(recovered.lost)} runs before it "
            f"({recovered.why or 'none could be taken'}): what they did is gone too. Run again: cells {cells}."
        )
    if recovered.broken:
        said += f" Not restored: {', '.join(recovered.broken)}."
    return said
