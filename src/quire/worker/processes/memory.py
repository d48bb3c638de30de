"""Memory of processes, and kills by the out-of-memory killer."""

from __future__ import annotations

import contextlib
import re

_PAGE_TABLES = re.compile(rb"^VmPTE:\s+(\d+)", re.MULTILINE)
_ROLLUP = re.compile(rb"^(Pss_Anon|Anonymous|Private_Dirty):\s+(\d+)", re.MULTILINE)


def oom_kills() -> int:
    """Processes of this machine killed for memory since it started."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat", "rb") as file:
        data = file.read()
        start = data.find(b"\noom_kill ")
        if start >= 0:
            return int(data[start + 10 : data.find(b"\n", start + 1)])
    return 0


def checkpoint_sizes(worker_pid: int, checkpoints: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Bytes that all checkpoints hold beyond the live process, and what dropping each would free."""
    rollups = {name: _rollup(pid) for name, pid in checkpoints.items()}
    tables = {name: _page_tables(pid) for name, pid in checkpoints.items()}
    worker = _rollup(worker_pid) if worker_pid else {}
    anonymous = sum(rollup.get(b"Pss_Anon", 0) for rollup in (worker, *rollups.values()))
    total = max(0, anonymous - worker.get(b"Anonymous", 0)) + sum(tables.values())
    return total, {name: rollup.get(b"Private_Dirty", 0) + tables[name] for name, rollup in rollups.items()}


def _rollup(pid: int) -> dict[bytes, int]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        return {name: int(kib) * 1024 for name, kib in _ROLLUP.findall(file.read())}
    return {}


def _page_tables(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        match = _PAGE_TABLES.search(file.read())
        return int(match[1]) * 1024 if match else 0
    return 0
