"""Memory set aside where a notebook's is limited, so that a cell that used all of it can still be answered."""

from __future__ import annotations

import contextlib
import mmap

_SIZE = 8 << 20  # bytes; counted against the limit, but not held until written to
_kept: list[mmap.mmap] = []
limited = False


def save() -> None:
    if limited and not _kept:
        with contextlib.suppress(OSError, MemoryError):
            _kept.append(mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def spend() -> None:
    while _kept:
        _kept.pop().close()
