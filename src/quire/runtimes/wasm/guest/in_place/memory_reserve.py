"""Memory set aside in blocks: a cell that used all the rest is answered, and those after it can free some."""

from __future__ import annotations

import contextlib

_BLOCK = 384 << 10  # bytes
_BLOCKS = 5
_ROOM = 256 << 10  # bytes that the next step needs, in one piece
_blocks: list[bytearray] = [bytearray(_BLOCK) for _ in range(_BLOCKS)]


def allocate() -> None:
    """Before a run: be whole again, where there is memory for it besides what the run needs."""
    if len(_blocks) < _BLOCKS:
        with contextlib.suppress(MemoryError):
            while len(_blocks) < _BLOCKS:
                _blocks.append(bytearray(_BLOCK))
        release()


def release() -> None:
    """Have room for what comes next, as long as there is a block to give."""
    while _blocks and not _is_room():
        _blocks.pop()


def _is_room() -> bool:
    try:
        bytearray(_ROOM)
    except MemoryError:
        return False
    return True
