"""Memory reserved in blocks, so that the guest can answer after a cell used all the rest, and later cells can free
some."""

from __future__ import annotations

import contextlib

_BLOCK = 384 << 10
_BLOCKS = 5
_ROOM = 256 << 10  # needed by the next step, in one piece
_blocks: list[bytearray] = [bytearray(_BLOCK) for _ in range(_BLOCKS)]


def allocate() -> None:
    """Before a run, fill the reserve if there is memory for it."""
    if len(_blocks) < _BLOCKS:
        with contextlib.suppress(MemoryError):
            while len(_blocks) < _BLOCKS:
                _blocks.append(bytearray(_BLOCK))
        release()


def release() -> None:
    """Free blocks until there is memory for the next step."""
    while _blocks and not _is_room():
        _blocks.pop()


def _is_room() -> bool:
    try:
        bytearray(_ROOM)
    except MemoryError:
        return False
    return True
