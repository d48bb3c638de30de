"""Start programs for cells. An interrupt during the start ends the program, too."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_Process = subprocess.Popen[bytes]


def start(arguments: list[str], stop: Callable[[_Process], None], **options: Any) -> _Process:
    """Start a program in a session of its own. If an interrupt comes before it is returned, `stop` ends it; `Popen`
    would raise and leave it running."""
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
