"""Memory reserved in notebooks with a memory limit, so that the worker can answer after a cell used all of it."""

from __future__ import annotations

import contextlib
import mmap

_SIZE_BYTES = 8 << 20  # counted against the limit, but not in use until written to
_blocks: list[mmap.mmap] = []
limited = False


def allocate() -> None:
    if limited and not _blocks:
        with contextlib.suppress(OSError, MemoryError):
            _blocks.append(mmap.mmap(-1, _SIZE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def release() -> None:
    while _blocks:
        _blocks.pop().close()
