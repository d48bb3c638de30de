"""The end of a kernel's process as a sentence and a next step."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from quire.core.model import Died

_SIGNALS = {
    signal.SIGSEGV: (
        "The kernel crashed with a segmentation fault (SIGSEGV): native code touched memory it may not.",
        "Look for a C extension, ctypes, or very deep recursion in this cell.",
    ),
    signal.SIGABRT: (
        "The kernel aborted itself (SIGABRT): native code found its own state broken.",
        "Look for a failed assertion in a C extension in this cell.",
    ),
    signal.SIGBUS: (
        "The kernel crashed with a bus error (SIGBUS).",
        "A file mapped into memory may have been cut short.",
    ),
    signal.SIGFPE: ("The kernel crashed with an arithmetic fault (SIGFPE) in native code.", ""),
    signal.SIGKILL: (
        "The kernel was killed (SIGKILL) from outside.",
        "If the cell used much memory, the system may have ended it for that; no evidence of it was found.",
    ),
    signal.SIGTERM: ("The kernel was ended from outside (SIGTERM).", ""),
}


@dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """How a process ended, as its supervisor reports it. `status` is None where it is not known."""

    status: int | None = None
    peak_bytes: int = 0
    oom: bool = False  # Linux killed a process for memory meanwhile
    why: str = ""  # the limit for which the supervisor killed it


def exit_reason(process_exit: ProcessExit) -> Died:
    """The reason and a hint for the reader."""
    status = process_exit.status
    if process_exit.why == "processes":
        return Died(
            reason="This notebook had more processes than it may, and all of them were ended.",
            hint="Start fewer at once; the notebook's limit is its `processes`.",
        )
    if status is None:
        return Died(reason="The kernel's process is gone; how it ended is not known.")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and process_exit.oom:
            return Died(
                reason="The system ran out of memory and ended the kernel "
                f"(it held {process_exit.peak_bytes / 2**20:,.0f} MiB at its peak).",
                hint="Work on less data at once, or give the notebook a memory limit to get a MemoryError instead.",
            )
        try:
            reason, hint = _SIGNALS[signal.Signals(number)]
        except (KeyError, ValueError):
            return Died(reason=f"The kernel was ended by signal {number}.")
        return Died(reason=reason, hint=hint)
    code = os.waitstatus_to_exitcode(status)
    return Died(
        reason=f"The kernel's process exited with code {code}.",
        hint="os._exit() and the like end the kernel; let the cell return instead.",
    )


def connection_closed() -> Died:
    """The worker closed its socket and was killed for that."""
    return Died(
        reason="The kernel closed its connection to the server and was ended.",
        hint="os.closerange() and the like close what the kernel needs; close only what the cell opened.",
    )


def protocol_error(detail: str) -> Died:
    """The worker sent a forged or incomplete frame and was killed for that."""
    return Died(
        reason=f"The kernel broke its protocol ({detail}) and was ended.",
        hint="Code that writes to file descriptors it did not open can do this.",
    )
