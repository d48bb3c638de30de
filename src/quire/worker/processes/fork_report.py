"""Find out what a copy of this process would lack. Called before each checkpoint; runs no user code."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from quire.worker.processes import after_fork, process_tree

_OPENMP = ("libgomp", "libomp", "libiomp")
_PAUSE_HARD = 2  # omp_pause_hard: the runtime ends its threads
_pauses: dict[str, Any] = {}  # pause function of each OpenMP library, by path
_SETTLE_TIMEOUT_S = 0.1  # for threads to end
_MAX_LISTED = 5
_UNSAFE_THREADS = {
    "polars": "polars (it stands still in a copy)",
    "event_engine": "grpc (its channels may fail in a copy)",
    "grpc_global_tim": "grpc (its channels may fail in a copy)",
    "PTThreadPool": "torch's inter-op threads (they are missing in a copy)",
    "ray": "ray (its connection is gone in a copy)",
    "cuda": "CUDA (the device does not work in a copy)",
}
"""Names of native threads (by prefix) of libraries that do not work in a copy."""


@dataclass(frozen=True)
class ForkReport:
    """What a copy would lack, and the descriptors it would share with the original."""

    single_threaded: bool = True
    lost: list[str] = field(default_factory=list)
    hostile: list[str] = field(default_factory=list)
    degraded: bool = False
    ipc_descriptors: list[int] = field(default_factory=list)  # sockets, pipes and the like
    files: dict[int, tuple[int, int]] = field(default_factory=dict)  # device and inode of each file, by descriptor

    @property
    def quality(self) -> str:
        """`clean`, `degraded` (something is lost) or `hostile` (a library will not work)."""
        return "hostile" if self.hostile else "degraded" if self.degraded else "clean"


def collect(own_descriptors: set[int], unusable_libraries: list[str]) -> ForkReport:
    """`own_descriptors` belong to the worker, not to cells. `unusable_libraries` do not work since this process was
    woken."""
    single_threaded = process_tree.is_single_threaded()
    ipc_descriptors, files = _descriptors(own_descriptors)
    connections = _connections(ipc_descriptors)
    hostile = (
        list(dict.fromkeys([*_unsafe_libraries(), *unusable_libraries])) if not single_threaded else unusable_libraries
    )
    lost = [*([] if single_threaded else _threads()), *_children()]
    if "duckdb" in sys.modules and not single_threaded:
        lost.append("duckdb (connections from before work, but must not be closed)")
    return ForkReport(single_threaded, [*lost, *connections, *hostile], hostile, bool(lost), ipc_descriptors, files)


def _descriptors(own_descriptors: set[int]) -> tuple[list[int], dict[int, tuple[int, int]]]:
    ipc_descriptors: list[int] = []
    files: dict[int, tuple[int, int]] = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd <= 2 or fd in own_descriptors:
            continue
        with contextlib.suppress(OSError):  # the descriptor of this listing
            path, status = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
            if path.startswith(("socket:", "pipe:", "anon_inode:")) or stat.S_ISFIFO(status.st_mode):
                ipc_descriptors.append(fd)
            elif path.startswith("/") and stat.S_ISREG(status.st_mode):
                files[fd] = (status.st_dev, status.st_ino)
    return ipc_descriptors, files


def pause_openmp() -> None:
    """Have every OpenMP runtime end its threads. It starts them again when needed, here and in the copy.

    Otherwise a copy that uses scikit-learn or PyTorch would wait forever for threads it does not have. A thread must
    not be ending while the copy is made, since it may hold a lock that would never be released in the copy.
    """
    pauses = _openmp()
    for pause in pauses:
        pause(_PAUSE_HARD)
    if pauses:
        _settle()


def _settle() -> None:
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    previous, unchanged = _tasks(), 0
    while unchanged < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
        count = _tasks()
        previous, unchanged = count, unchanged + 1 if count == previous else 0


def _tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def _openmp() -> list[Any]:
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            path = line[line.find("/") :].rstrip("\n")
            if path not in _pauses and path.rpartition("/")[2].startswith(_OPENMP):
                with contextlib.suppress(OSError, AttributeError):
                    _pauses[path] = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_NOW).omp_pause_resource_all
    return list(_pauses.values())


def _threads() -> list[str]:
    """Python threads, except those of idle pools, which are restarted."""
    idle = after_fork.idle_pool_threads()
    main = threading.main_thread()
    return _listed(
        "thread", [thread.name for thread in threading.enumerate() if thread is not main and thread not in idle]
    )


def _connections(ipc_descriptors: list[int]) -> list[str]:
    """Network sockets. Unix sockets are ignored, since most belong to a library."""
    count = 0
    for fd in ipc_descriptors:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            with socket.socket(fileno=os.dup(fd)) as sock:
                count += sock.family in (socket.AF_INET, socket.AF_INET6)
    return [f"{count} network connection{'s' * (count > 1)}"] if count else []


def _children() -> list[str]:
    pools = after_fork.pool_children()
    return _listed("child process", [str(pid) for pid in process_tree.children(os.getpid()) if pid not in pools])


def _unsafe_libraries() -> list[str]:
    found: dict[str, None] = {}
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            name = file.read()
            found.update({text: None for prefix, text in _UNSAFE_THREADS.items() if name.startswith(prefix)})
    return list(found)


def _listed(kind: str, names: list[str]) -> list[str]:
    shown = [f"{kind} {name}"[:100] for name in names[:_MAX_LISTED]]
    return [*shown, f"{len(names) - _MAX_LISTED} more"] if len(names) > _MAX_LISTED else shown
