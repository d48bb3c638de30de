"""Which checkpoints fit into the memory budget of a notebook."""

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
_MIN_CHECKPOINT_BYTES = 1 << 20  # of any checkpoint: page tables, and pages touched before it slept
_SMALL_CHECKPOINT_BYTES = 8 << 20  # checkpoints estimated below this are dropped without measuring
_RESERVED_FRACTION = 0.1  # of the machine's memory that must stay free if a cell rewrites all it holds
_PLENTY_FRACTION = 0.7  # of the memory available: the whole budget may be used
_SCARCE_FRACTION = 0.3  # of the memory available: nothing of the budget may be used
_MIN_BUDGET_BYTES = 24 << 20  # always allowed: a few checkpoints of a small namespace
_CACHE_S = 1.0
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+)", re.MULTILINE)


class CheckpointSizes:
    """The memory that each checkpoint holds. It is estimated from the page faults of the live process. Measuring takes
    a millisecond per checkpoint, so it is done only when a checkpoint that matters would be dropped."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}  # oldest first
        self._faults = 0

    def add(self, checkpoints: list[str], faults: int) -> None:
        """Set the existing checkpoints; the last one is new. Pages touched since then belong to the one before it."""
        # a process woken from a checkpoint counts from 0
        touched_bytes = (faults - self._faults if faults >= self._faults else faults) * _PAGE_BYTES
        self._faults = faults
        if self._bytes:
            self._bytes[next(reversed(self._bytes))] += touched_bytes
        self._bytes = {name: self._bytes.get(name, _MIN_CHECKPOINT_BYTES) for name in checkpoints}

    def total_bytes(self, checkpoints: Collection[str]) -> int:
        """Memory that these checkpoints hold together."""
        return sum(size for name, size in self._bytes.items() if name in checkpoints)

    def remove(self, name: str) -> None:
        self._bytes.pop(name, None)
        self._faults = 0

    def needs_measuring(self, allowed: int, named: set[str]) -> bool:
        """Whether a checkpoint would be dropped although the estimate may be wrong."""
        return any(self._bytes[name] > _SMALL_CHECKPOINT_BYTES for name in self.choose_dropped(allowed, named))

    def set_measured(self, total: int, own: Mapping[str, int]) -> None:
        shared = max(0, total - sum(own.values())) // max(1, len(own))
        self._bytes = {name: own.get(name, 0) + shared for name in self._bytes}

    def choose_dropped(self, allowed: int, named: set[str]) -> list[str]:
        """Checkpoints to drop until the rest fit: unnamed ones first, then the oldest. Never the newest, which a crash
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
    """The machine's memory, in bytes."""

    total: int
    available: int

    def has_room_for_copy(self, process_bytes: int) -> bool:
        """Whether a process of this size and a checkpoint of it fit, even if a cell rewrites all its memory."""
        return self.available - process_bytes > _RESERVED_FRACTION * self.total

    def allowed_bytes(self, budget: int) -> int:
        """The part of a budget that may be used. It shrinks when memory is scarce, since other notebooks have
        checkpoints too."""
        fraction = (self.available / self.total - _SCARCE_FRACTION) / (_PLENTY_FRACTION - _SCARCE_FRACTION)
        return max(min(budget, _MIN_BUDGET_BYTES), int(budget * min(1.0, max(0.0, fraction))))


def machine_memory() -> MachineMemory:
    """At most a second old, since reading the file takes a while."""
    global _cached
    now = time.monotonic()
    if now - _cached[0] > _CACHE_S:
        _cached = now, _read_machine_memory()
    return _cached[1]


def _read_machine_memory() -> MachineMemory:
    with contextlib.suppress(OSError, KeyError):
        kib_by_name = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(Path("/proc/meminfo").read_text())}
        return MachineMemory(total=kib_by_name["MemTotal"], available=kib_by_name["MemAvailable"])
    return MachineMemory(total=1, available=1)


_cached = (-math.inf, MachineMemory(total=1, available=1))


def private_bytes(pid: int) -> int:
    """Memory that only this process holds."""
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE_BYTES
    return 0
