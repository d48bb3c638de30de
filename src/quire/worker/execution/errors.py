"""What a cell raised, as its reader sees it: cell source in the traceback, our own frames left out."""

from __future__ import annotations

import os
import sys
import traceback
import types
from typing import Any

from quire.wire.messages import Raised
from quire.worker.execution import hints

_TRACEBACK_CHARS = 20_000
OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")  # worker and wire


class InputNotAvailable(RuntimeError):
    """A cell asked for input and nobody answered."""


class CpuTimeExceeded(RuntimeError):
    """A run used more processor time than its notebook allows."""


InputNotAvailable.__module__ = CpuTimeExceeded.__module__ = "builtins"  # in tracebacks, without where they are from


def raised_event(error: BaseException) -> Raised:
    name = type(error).__name__
    message = _message(error)
    if isinstance(error, SystemExit):
        message = f"exit code {message or 0}; the kernel goes on and its variables are kept"
    return Raised(
        name=name, message=printable(message)[:4_000], traceback=printable(with_hint(format_traceback(error), error))
    )


def with_hint(shown: str, error: BaseException) -> str:
    """The traceback, and a line that names the next step where its last line, as Python 3.12 writes it, does not."""
    if "Did you " in shown.rpartition("\n")[2]:
        return shown
    hint = hints.hint(error)
    return f"{shown}\n{hint}" if hint else shown


def format_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from the cell's first line on."""
    try:
        report = traceback.TracebackException(type(error), error, _user_part(error), compact=True)
        report.stack[:] = [frame for frame in report.stack if not _is_own_frame(frame.filename)]
        _align_carets(report)
        shown = "".join(report.format()).rstrip()
    except Exception:
        shown = f"{type(error).__name__}: {_message(error)}"
    if len(shown) > _TRACEBACK_CHARS:
        half = _TRACEBACK_CHARS // 2
        shown = f"{shown[:half]}\n... {len(shown) - 2 * half:,} characters left out ...\n{shown[-half:]}"
    return shown


def _align_carets(report: traceback.TracebackException) -> None:
    """Before Python 3.13 carets are shifted to the left by the blanks that a line ends with."""
    pending: list[traceback.TracebackException | None] = [report]
    while pending:
        item: Any = pending.pop()
        if item is not None:
            for frame in item.stack:
                if type(getattr(frame, "_line", None)) is str:
                    frame._line = f"{frame._line.rstrip()}\n"
            pending += [item.__cause__, item.__context__, *(item.exceptions or ())]


def printable(shown: str) -> str:
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "<its __str__ raised too>"


def _is_own_frame(filename: str) -> bool:
    """Our own, or the shell's that stands between a cell and its magic."""
    shell = getattr(sys.modules.get("IPython"), "__file__", None)
    folders = [OWN_FOLDER, os.path.join(os.path.dirname(shell), "")] if shell is not None else [OWN_FOLDER]
    return any(filename.startswith(folder) for folder in folders)


def _user_part(error: BaseException) -> types.TracebackType | None:
    """Skip our own frames at the top; none left means the cell did not even compile."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    return trace
