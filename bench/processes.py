"""Processes of the servers measured, and the memory they hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

_KIB = re.compile(r"^(\w+):\s+(\d+) kB", re.MULTILINE)


def quire_server() -> int:
    """The one Quire this process started."""
    (found,) = [pid for pid in children(os.getpid()) if b"\0-m\0quire\0" in _command(pid)]
    return found


def zygote(server: int) -> int:
    """The process all its kernels come from."""
    (found,) = [pid for pid in children(server) if b"/worker/__main__.py\0" in _command(pid)]
    return found


def family(pid: int) -> list[int]:
    """The process and all below it."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def pss(pid: int) -> int:
    """Bytes: its own memory, and its share of what it shares."""
    return _kib(f"/proc/{pid}/smaps_rollup")["Pss"] * 1024


def resident(pid: int) -> tuple[int, int]:
    """Bytes in memory now, and at most since `forget_peak`."""
    found = _kib(f"/proc/{pid}/status")
    return found["VmRSS"] * 1024, found["VmHWM"] * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def available() -> int:
    """Bytes of the machine's memory that are free or can be freed at once."""
    return _kib("/proc/meminfo")["MemAvailable"] * 1024


def _kib(path: str) -> dict[str, int]:
    return {name: int(kib) for name, kib in _KIB.findall(Path(path).read_text())}


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
