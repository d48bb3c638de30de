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

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MIN_CHECKPOINT_BYTES = 1 << 20  # bytes a checkpoint holds by itself: page tables, and what it touched before it slept
_SMALL_CHECKPOINT_BYTES = 8 << 20  # bytes: a checkpoint guessed to hold no more is dropped without being weighed
_RESERVED_FRACTION = 0.1  # the part of the machine's memory that must be left if a cell rewrites all it holds
_PLENTY_FRACTION, _SCARCE_FRACTION = (
    0.7,
    0.3,
)  # parts of it available: above the one the budget is whole, below the other nothing
_MIN_BUDGET_BYTES = 24 << 20  # bytes of a budget that always count: a few checkpoints of a small namespace
_CACHE_S = 1.0  # seconds
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+)", re.MULTILINE)


class CheckpointSizes:
    """What each checkpoint holds, guessed from the pages the live process touched after it, and weighed only where
    the guess would cost a checkpoint that matters: to weigh takes a millisecond for each."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}  # bytes, oldest first
        self._faults = 0

    def add(self, checkpoints: list[str], faults: int) -> None:
        """These are kept now; the last one is new. What was touched since the one before is held by that one."""
        touched_bytes = (
            faults - self._faults if faults >= self._faults else faults
        ) * _PAGE_BYTES  # one woken counts from 0
        self._faults = faults
        if self._bytes:
            self._bytes[next(reversed(self._bytes))] += touched_bytes
        self._bytes = {name: self._bytes.get(name, _MIN_CHECKPOINT_BYTES) for name in checkpoints}

    def total_bytes(self, checkpoints: Collection[str]) -> int:
        """Bytes that these hold together."""
        return sum(held for name, held in self._bytes.items() if name in checkpoints)

    def remove(self, name: str) -> None:
        self._bytes.pop(name, None)
        self._faults = 0

    def needs_measuring(self, allowed: int, named: set[str]) -> bool:
        """Whether one has to go of which it is not sure that it holds much for its own sake."""
        return any(self._bytes[name] > _SMALL_CHECKPOINT_BYTES for name in self.choose_dropped(allowed, named))

    def set_measured(self, total: int, own: Mapping[str, int]) -> None:
        shared = max(0, total - sum(own.values())) // max(1, len(own))
        self._bytes = {name: own.get(name, 0) + shared for name in self._bytes}

    def choose_dropped(self, allowed: int, named: set[str]) -> list[str]:
        """The oldest without a name, then the oldest, until the rest fit; never the newest, which the next crash
        needs."""
        older = list(self._bytes)[:-1]
        total = sum(self._bytes.values())
        dropped: list[str] = []
        for name in [name for name in older if name not in named] + [name for name in older if name in named]:
            if total <= allowed:
                break
            dropped.append(name)
            total -= self._bytes[name]
        return dropped


@dataclass(frozen=True)
class MachineMemory:
    """Its memory, in bytes."""

    total: int
    available: int

    def has_room_for_copy(self, process_bytes: int) -> bool:
        """Whether a process of that size and a checkpoint of it fit, even if it rewrites all it holds."""
        return self.available - process_bytes > _RESERVED_FRACTION * self.total

    def allowed_bytes(self, budget: int) -> int:
        """What is left of a budget, the scarcer memory is: other notebooks have checkpoints too."""
        fraction = (self.available / self.total - _SCARCE_FRACTION) / (_PLENTY_FRACTION - _SCARCE_FRACTION)
        return max(min(budget, _MIN_BUDGET_BYTES), int(budget * min(1.0, max(0.0, fraction))))


def machine_memory() -> MachineMemory:
    """As it was a second ago at most: the file takes a while to read."""
    global _cached
    now = time.monotonic()
    if now - _cached[0] > _CACHE_S:
        _cached = now, _read_machine_memory()
    return _cached[1]


def _read_machine_memory() -> MachineMemory:
    with contextlib.suppress(OSError, KeyError):
        found = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(Path("/proc/meminfo").read_text())}
        return MachineMemory(total=found["MemTotal"], available=found["MemAvailable"])
    return MachineMemory(total=1, available=1)


_cached = (-math.inf, MachineMemory(total=1, available=1))


def private_bytes(pid: int) -> int:
    """Bytes of its own that a process holds in memory."""
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE_BYTES
    return 0
