"""Start a program for a cell. An interrupt that comes while it starts ends it too."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_Process = subprocess.Popen[bytes]


def start(arguments: list[str], stop: Callable[[_Process], None], **options: Any) -> _Process:
    """Start it in a session of its own. `stop` ends it if an interrupt came before it could be returned: `Popen` would
    raise and leave it running."""
    if threading.current_thread() is not threading.main_thread():  # the others are never interrupted
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
