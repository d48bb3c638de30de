"""Wait for a killed process, with a timeout: Linux may keep it, and the server has to continue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from pathlib import Path

_log = logging.getLogger(__name__)

_KILLED_S = 10.0


async def wait_killed(end: Awaitable[object], pid: int, what: str) -> bool:
    """Wait for `end`, which completes when the process is gone. False after the timeout; the log then says what the
    process does."""
    try:
        async with asyncio.timeout(_KILLED_S):
            await end
        return True
    except TimeoutError:
        _log.warning("%s (process %d) is not gone %g s after SIGKILL: %s", what, pid, _KILLED_S, _describe(pid))
        return False


def _describe(pid: int) -> str:
    """The state of a process and the system call it is in, as far as Linux tells."""
    process, details = Path("/proc", str(pid)), []
    with contextlib.suppress(OSError, IndexError):
        details.append(f"state {(process / 'stat').read_text().rpartition(')')[2].split()[0]}")
    for name in ("wchan", "syscall", "stack"):
        with contextlib.suppress(OSError):
            details.append(f"{name} {' '.join((process / name).read_text().split())}")
    return ", ".join(details) or "the system has no such process any more"
