"""The outcome of a run, and the sentences that explain it. Pure functions."""

from __future__ import annotations

from quire.core.kernels.slot import RecoveryResult
from quire.core.model import CellState, Died
from quire.core.runs.active_run import StopReason
from quire.wire.messages import Finished


def outcome(
    finished: Finished | None, died: Died | None, stop_reason: StopReason | None, timeout: float, detail: str = ""
) -> tuple[CellState, str, str]:
    """The cell's state, its cause if the outputs do not say it, and advice."""
    if finished is not None:
        match finished.outcome, stop_reason:
            case "success", _:
                return CellState.SUCCESS, "", ""
            case _, StopReason.TIMEOUT:
                again = "Call again with a larger timeout, or do less at once."
                return CellState.TIMEOUT, f"Stopped after {timeout:g} s, its timeout.", again
            case _, StopReason.QUOTA:
                return CellState.INTERRUPTED, f"{detail[:1].upper()}{detail[1:]}", ""
            case "interrupted", _:
                return CellState.INTERRUPTED, "Stopped by an interrupt.", ""
            case _:
                return CellState.ERROR, "", ""
    if died is not None and died.lives:
        return _outcome_elsewhere(died, stop_reason, timeout)
    match stop_reason:
        case StopReason.TIMEOUT:
            message = f"It ran past its timeout of {timeout:g} s, did not stop when interrupted, and was killed."
            return CellState.TIMEOUT, message, ""
        case StopReason.INTERRUPT:
            return CellState.INTERRUPTED, "It was interrupted, did not stop by itself, and was killed.", ""
        case StopReason.QUOTA:
            return CellState.INTERRUPTED, f"It did not stop when interrupted, and was killed: {detail}", ""
        case StopReason.SHUTDOWN:
            return CellState.INTERRUPTED, "The server was stopped while it ran.", ""
    if died is None:
        return CellState.CRASHED, "The kernel is gone.", ""
    return CellState.CRASHED, died.reason, died.hint


def _outcome_elsewhere(died: Died, stop_reason: StopReason | None, timeout: float) -> tuple[CellState, str, str]:
    """The outcome of a run that goes on in a Jupyter server's kernel, or never began there."""
    match stop_reason:
        case StopReason.TIMEOUT:
            return CellState.TIMEOUT, f"It ran past its timeout of {timeout:g} s. {died.reason}", died.hint
        case None:
            return CellState.CRASHED, died.reason, died.hint
        case _:
            return CellState.INTERRUPTED, f"It was interrupted. {died.reason}", died.hint


VARIABLES_KEPT = "Variables are kept."
_NEXT_KERNEL = {
    "saved": "; the next run starts another, with what was saved, if anything was",
    "empty": "; the next run starts another",
    "none": "",
}


def describe_restored(recovered: RecoveryResult) -> str:
    """What became of the variables when the namespace was restored from before a run."""
    if not recovered.restored:
        return f"The kernel is gone ({recovered.why}){_NEXT_KERNEL[recovered.next_kernel]}."
    if recovered.is_emptied:
        lost = recovered.lost_cells
        cells = f"cell{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}" if lost else ""
        again = f"Run again: {cells}." if cells else "Run the cells again whose variables are needed."
        return f"All variables of the kernel are gone, also those of other clients. {again}"
    message = "Variables are as they were before this cell."
    if recovered.lost_runs:
        cells = ", ".join(map(str, recovered.lost_cells)) or "deleted since"
        many = f"the last {len(recovered.lost_runs)} runs" if len(recovered.lost_runs) > 1 else "the run"
        why = recovered.why or "none could be taken"
        message = (
            f"What {many} before it did is gone too: there was no checkpoint, {why}. "
            f"Run again: cell{'s' * (len(recovered.lost_runs) > 1)} {cells}."
        )
    if recovered.missing:
        message += f" Not restored: {', '.join(recovered.missing)}."
    if recovered.is_hostile:
        message += " To use it again, call reset and run the cells again."
    return message


def describe_revived(recovered: RecoveryResult) -> str:
    """The same for a kernel that died while nothing ran."""
    if recovered.is_emptied:
        return f"The kernel died between two runs and was restarted. {describe_restored(recovered)}"
    message = "The kernel's process died between two runs and was restored."
    if recovered.lost_runs:
        again = ", ".join(map(str, recovered.lost_cells)) or "deleted since"
        message += f" Some of what ran is gone, since there was no checkpoint. Run again: cells {again}."
    return message
