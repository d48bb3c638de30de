"""How many checkpoints fit: by the memory they hold, not by their number."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_DRIFT = 8 << 20  # bytes the live process may have touched before checkpoints are weighed again
_MANY = 8  # new checkpoints after which they are weighed, however little was touched
_RESERVE = 0.1  # the part of the machine's memory that must be left if a cell rewrites all it holds
_PLENTY, _SCARCE = 0.7, 0.3  # parts of it available: above the one the budget is whole, below the other nothing
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+)", re.MULTILINE)


class Ledger:
    """When checkpoints are to be weighed: that costs a millisecond and more, and most cells change little."""

    def __init__(self) -> None:
        self._faults = 0
        self._count = 0
        self._again = False

    def due(self, faults: int, count: int) -> bool:
        drifted = faults - self._faults if faults >= self._faults else faults  # a woken process counts from 0 again
        return self._again or drifted * _PAGE > _DRIFT or count >= self._count + _MANY

    def weighed(self, faults: int, count: int) -> None:
        self._faults, self._count, self._again = faults, count, False

    def stale(self) -> None:
        self._again = True


def first_to_go(kept: list[str], named: set[str]) -> str | None:
    """The oldest without a name, else the oldest; never the newest, which the next crash needs."""
    older = kept[:-1]
    return next((name for name in older if name not in named), older[0] if older else None)


@dataclass(frozen=True)
class Machine:
    """Its memory, in bytes."""

    total: int
    available: int

    def room_beside(self, process: int) -> bool:
        """Whether a process of that size and a checkpoint of it fit, even if it rewrites all it holds."""
        return self.available - process > _RESERVE * self.total

    def share(self, budget: int) -> int:
        """What is left of a budget, the scarcer memory is: other notebooks have checkpoints too."""
        part = (self.available / self.total - _SCARCE) / (_PLENTY - _SCARCE)
        return int(budget * min(1.0, max(0.0, part)))


def machine() -> Machine:
    with contextlib.suppress(OSError, KeyError):
        found = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(Path("/proc/meminfo").read_text())}
        return Machine(total=found["MemTotal"], available=found["MemAvailable"])
    return Machine(total=1, available=1)


def size_of(pid: int) -> int:
    """Bytes of its own that a process holds in memory."""
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE
    return 0
