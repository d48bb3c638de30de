"""Memory set aside where a notebook's is limited, so that a cell that used all of it can still be answered."""

from __future__ import annotations

import contextlib
import mmap

_SIZE_BYTES = 8 << 20  # bytes; counted against the limit, but not held until written to
_blocks: list[mmap.mmap] = []
limited = False


def allocate() -> None:
    if limited and not _blocks:
        with contextlib.suppress(OSError, MemoryError):
            _blocks.append(mmap.mmap(-1, _SIZE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def release() -> None:
    while _blocks:
        _blocks.pop().close()
