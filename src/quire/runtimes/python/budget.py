"""How many checkpoints fit: by the memory they hold, not by their number."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

_PAGE = 4096  # bytes
_DRIFT = 8 << 20  # bytes the live process may have touched before checkpoints are weighed again
_MANY = 8  # new checkpoints after which they are weighed, however little was touched
_SHORT = 0.3  # the part of the machine's memory that must stay available for checkpoints to be taken
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+)", re.MULTILINE)


class Ledger:
    """When checkpoints are to be weighed: that costs a millisecond and more, and most cells change little."""

    def __init__(self) -> None:
        self._faults = 0
        self._count = 0
        self._again = False

    def due(self, faults: int, count: int) -> bool:
        drifted = (faults - self._faults) % (1 << 62) * _PAGE  # a woken process counts from 0 again
        return self._again or drifted > _DRIFT or count >= self._count + _MANY

    def weighed(self, faults: int, count: int) -> None:
        self._faults, self._count, self._again = faults, count, False

    def stale(self) -> None:
        self._again = True


def first_to_go(kept: list[str], named: set[str]) -> str | None:
    """The oldest without a name, else the oldest; never the newest, which the next crash needs."""
    older = kept[:-1]
    return next((name for name in older if name not in named), older[0] if older else None)


def memory_is_short() -> bool:
    with contextlib.suppress(OSError, KeyError), Path("/proc/meminfo").open() as file:
        found = {name: int(kib) for name, kib in _MEMINFO.findall(file.read())}
        return found["MemAvailable"] < _SHORT * found["MemTotal"]
    return False
