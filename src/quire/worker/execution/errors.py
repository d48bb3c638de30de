"""Exceptions of cells as text: with the cell's source, without the worker's own frames."""

from __future__ import annotations

import os
import sys
import traceback
import types
from typing import Any

from quire.wire.messages import Raised
from quire.worker.execution import hints

_TRACEBACK_CHARS = 20_000
OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")  # Quire's package


class InputNotAvailable(RuntimeError):
    """A cell asked for input, and there was no answer."""


class CpuTimeExceeded(RuntimeError):
    """A run used more processor time than its notebook allows."""


InputNotAvailable.__module__ = CpuTimeExceeded.__module__ = "builtins"  # tracebacks show them without a module


def raised_event(error: BaseException) -> Raised:
    name = type(error).__name__
    message = _message(error)
    if isinstance(error, SystemExit):
        message = f"exit code {message or 0}; the kernel goes on and its variables are kept"
    shown = with_hint(format_traceback(error), error)
    return Raised(name=name, message=printable(message)[:4_000], traceback=printable(shown))


def with_hint(shown: str, error: BaseException) -> str:
    """Append a hint, unless Python's own suggestion is in the last line."""
    if "Did you " in shown.rpartition("\n")[2]:
        return shown
    hint = hints.hint(error)
    return f"{shown}\n{hint}" if hint else shown


def format_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from the cell's first frame on."""
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
    """Before Python 3.13 carets are shifted left by trailing blanks of the line."""
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
    """A frame of Quire, or of IPython between a cell and its magic."""
    shell = getattr(sys.modules.get("IPython"), "__file__", None)
    folders = [OWN_FOLDER, os.path.join(os.path.dirname(shell), "")] if shell is not None else [OWN_FOLDER]
    return any(filename.startswith(folder) for folder in folders)


def _user_part(error: BaseException) -> types.TracebackType | None:
    """Skip the worker's frames at the top. None if the cell did not compile."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    return trace
