"""Start programs for cells. An interrupt during the start ends the program, too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from types import FrameType
from typing import Any

_INTERRUPT_TIMEOUT_S = 2.0  # before an interrupted program is killed


def start(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own. An interrupt before it is returned ends it; `Popen` would raise and
    leave it running."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        return subprocess.Popen(arguments, start_new_session=True, **options)
    interrupts: list[FrameType | None] = []
    handler = signal.signal(signal.SIGINT, lambda _, frame: interrupts.append(frame))
    try:
        process = subprocess.Popen(arguments, start_new_session=True, **options)
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        stop(process)
        if callable(handler):
            handler(signal.SIGINT, interrupts[0])
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a program, then kill it, with all processes of its group."""
    _signal(process, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_INTERRUPT_TIMEOUT_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
