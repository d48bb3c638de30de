"""The path of an open file, even if it was opened by a relative name and the current folder changed."""

from __future__ import annotations

import os
from typing import Any


def path_of(name: Any, descriptor: int) -> str:
    """The path by name, or by descriptor if the name leads elsewhere."""
    path = os.path.abspath(os.fsdecode(name))
    if not os.path.isabs(os.fsdecode(name)) and not _leads_to(path, descriptor):
        found = os.readlink(f"/proc/self/fd/{descriptor}")
        if _leads_to(found, descriptor):
            return found
    return path


def _leads_to(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
