"""Remove environment variables that cells must not see, also from the copy that Linux keeps."""

from __future__ import annotations

import ctypes
import os
import re

_START, _END = 47, 48  # fields of /proc/self/stat after the process's name: address of the environment


def remove(names: list[str]) -> None:
    """Remove them from os.environ, from programs started later, and from /proc/self/environ."""
    present = [name for name in names if os.environ.pop(name, None) is not None]
    if not present:
        return
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
        block = ctypes.string_at(start, end - start)
        for name in present:
            for match in re.finditer(rb"(?<![^\0])" + re.escape(os.fsencode(name)) + rb"=([^\0]*)", block):
                ctypes.memset(start + match.start(1), 0, match.end(1) - match.start(1))
    except (OSError, ValueError, IndexError):
        pass  # without /proc there is no copy
