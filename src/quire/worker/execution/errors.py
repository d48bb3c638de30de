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
OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")  # worker and wire


class InputNotAvailable(RuntimeError):
    """A cell asked for input and nobody answered."""


class CpuTimeExceeded(RuntimeError):
    """A run used more processor time than its notebook allows."""


InputNotAvailable.__module__ = CpuTimeExceeded.__module__ = "builtins"  # in tracebacks, without where they are from


def raised(error: BaseException) -> Raised:
    name = type(error).__name__
    message = _say(error)
    if isinstance(error, SystemExit):
        message = f"exit code {message or 0}; the kernel goes on and its variables are kept"
    return Raised(name=name, message=text(message)[:4_000], traceback=text(with_hint(formatted(error), error)))


def with_hint(shown: str, error: BaseException) -> str:
    """The traceback, and a line that names the next step where its last line, as Python 3.12 writes it, does not."""
    if "Did you " in shown.rpartition("\n")[2]:
        return shown
    hint = hints.hint(error)
    return f"{shown}\n{hint}" if hint else shown


def formatted(error: BaseException) -> str:
    """The traceback as Python prints it, from the cell's first line on."""
    try:
        whole = traceback.TracebackException(type(error), error, _user_part(error), compact=True)
        whole.stack[:] = [frame for frame in whole.stack if not _is_ours(frame.filename)]
        _align_carets(whole)
        said = "".join(whole.format()).rstrip()
    except Exception:
        said = f"{type(error).__name__}: {_say(error)}"
    if len(said) > _TRACEBACK_CHARS:
        half = _TRACEBACK_CHARS // 2
        said = f"{said[:half]}\n... {len(said) - 2 * half:,} characters left out ...\n{said[-half:]}"
    return said


def _align_carets(whole: traceback.TracebackException) -> None:
    """Before Python 3.13 carets are shifted to the left by the blanks that a line ends with."""
    waiting: list[traceback.TracebackException | None] = [whole]
    while waiting:
        part: Any = waiting.pop()
        if part is not None:
            for frame in part.stack:
                if type(getattr(frame, "_line", None)) is str:
                    frame._line = f"{frame._line.rstrip()}\n"
            waiting += [part.__cause__, part.__context__, *(part.exceptions or ())]


def text(said: str) -> str:
    return said.encode("utf-8", "backslashreplace").decode("utf-8")


def _say(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "<its __str__ raised too>"


def _is_ours(filename: str) -> bool:
    """Our own, or the shell's that stands between a cell and its magic."""
    shell = getattr(sys.modules.get("IPython"), "__file__", None)
    folders = [OURS, os.path.join(os.path.dirname(shell), "")] if shell is not None else [OURS]
    return any(filename.startswith(folder) for folder in folders)


def _user_part(error: BaseException) -> types.TracebackType | None:
    """Skip our own frames at the top; none left means the cell did not even compile."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    return trace
