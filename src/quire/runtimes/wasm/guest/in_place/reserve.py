"""Memory set aside so that a cell that used all of it can still be answered."""

from __future__ import annotations

import contextlib

_SIZE = 1 << 18  # bytes
_kept: list[bytearray] = [bytearray(_SIZE)]


def save() -> None:
    if not _kept:
        with contextlib.suppress(MemoryError):
            _kept.append(bytearray(_SIZE))


def spend() -> None:
    _kept.clear()
