"""How many checkpoints fit: by the memory they hold, not by their number."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FORK = 1 << 20  # bytes a checkpoint holds by itself: page tables, and what it touched before it slept
_SMALL = 8 << 20  # bytes: a checkpoint guessed to hold no more is dropped without being weighed
_RESERVE = 0.1  # the part of the machine's memory that must be left if a cell rewrites all it holds
_PLENTY, _SCARCE = 0.7, 0.3  # parts of it available: above the one the budget is whole, below the other nothing
_LEAST = 24 << 20  # bytes of a budget that always count: a few checkpoints of a small namespace
_FRESH = 1.0  # seconds
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+)", re.MULTILINE)


class Ledger:
    """What each checkpoint holds, guessed from the pages the live process touched after it, and weighed only where
    the guess would cost a checkpoint that matters: to weigh takes a millisecond for each."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # bytes, oldest first
        self._faults = 0

    def taken(self, kept: list[str], faults: int) -> None:
        """These are kept now; the last one is new. What was touched since the one before is held by that one."""
        touched = (faults - self._faults if faults >= self._faults else faults) * _PAGE  # one woken counts from 0
        self._faults = faults
        if self._held:
            self._held[next(reversed(self._held))] += touched
        self._held = {name: self._held.get(name, _FORK) for name in kept}

    def held(self, kept: Collection[str]) -> int:
        """Bytes that these hold together."""
        return sum(held for name, held in self._held.items() if name in kept)

    def woken(self, name: str) -> None:
        self._held.pop(name, None)
        self._faults = 0

    def doubtful(self, allowed: int, named: set[str]) -> bool:
        """Whether one has to go of which it is not sure that it holds much for its own sake."""
        return any(self._held[name] > _SMALL for name in self.surplus(allowed, named))

    def weighed(self, total: int, own: Mapping[str, int]) -> None:
        shared = max(0, total - sum(own.values())) // max(1, len(own))
        self._held = {name: own.get(name, 0) + shared for name in self._held}

    def surplus(self, allowed: int, named: set[str]) -> list[str]:
        """The oldest without a name, then the oldest, until the rest fit; never the newest, which the next crash
        needs."""
        older = list(self._held)[:-1]
        total = sum(self._held.values())
        going: list[str] = []
        for name in [name for name in older if name not in named] + [name for name in older if name in named]:
            if total <= allowed:
                break
            going.append(name)
            total -= self._held[name]
        return going


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
        return max(min(budget, _LEAST), int(budget * min(1.0, max(0.0, part))))


def machine() -> Machine:
    """As it was a second ago at most: the file takes a while to read."""
    global _seen
    now = time.monotonic()
    if now - _seen[0] > _FRESH:
        _seen = now, _read_machine()
    return _seen[1]


def _read_machine() -> Machine:
    with contextlib.suppress(OSError, KeyError):
        found = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(Path("/proc/meminfo").read_text())}
        return Machine(total=found["MemTotal"], available=found["MemAvailable"])
    return Machine(total=1, available=1)


_seen = (-math.inf, Machine(total=1, available=1))


def size_of(pid: int) -> int:
    """Bytes of its own that a process holds in memory."""
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE
    return 0
