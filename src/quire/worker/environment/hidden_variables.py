"""Variables of the environment that are not for cells: taken out of it, and out of where the system keeps a copy."""

from __future__ import annotations

import ctypes
import os
import re

_START, _END = 47, 48  # of what /proc/self/stat says after the process's name: where the copy lies


def remove(names: list[str]) -> None:
    """Not in os.environ, not inherited by what is started from now on, not in /proc/self/environ."""
    present = [name for name in names if os.environ.pop(name, None) is not None]
    if not present:
        return
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
        block = ctypes.string_at(start, end - start)
        for name in present:
            for found in re.finditer(rb"(?<![^\0])" + re.escape(os.fsencode(name)) + rb"=([^\0]*)", block):
                ctypes.memset(start + found.start(1), 0, found.end(1) - found.start(1))
    except (OSError, ValueError, IndexError):
        pass  # a system without it keeps no copy that we could reach
