"""Waits for a process that was sent SIGKILL, but not for ever: the system may keep it, and the server has to go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from pathlib import Path

_log = logging.getLogger(__name__)

_KILLED_S = 10.0


async def wait_killed(end: Awaitable[object], pid: int, what: str) -> bool:
    """Wait until `end`, which says that the process is gone. Whether it is; if not, the log says what it is doing."""
    try:
        async with asyncio.timeout(_KILLED_S):
            await end
        return True
    except TimeoutError:
        _log.warning("%s (process %d) is not gone %g s after SIGKILL: %s", what, pid, _KILLED_S, _describe(pid))
        return False


def _describe(pid: int) -> str:
    """The state of a process and the system call it is in, as far as the system tells."""
    process, found = Path("/proc", str(pid)), []
    with contextlib.suppress(OSError, IndexError):
        found.append(f"state {(process / 'stat').read_text().rpartition(')')[2].split()[0]}")
    for name in ("wchan", "syscall", "stack"):
        with contextlib.suppress(OSError):
            found.append(f"{name} {' '.join((process / name).read_text().split())}")
    return ", ".join(found) or "the system has no such process any more"
