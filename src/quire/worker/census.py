"""What a copy of this process would not have: asked before each checkpoint, without running user code."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from typing import Any

from quire.worker import processes, repairs

_OPENMP = ("libgomp", "libomp", "libiomp")
_HARD = 2  # omp_pause_hard: the runtime lets go of its threads
_paused: dict[str, Any] = {}  # each OpenMP library's way to pause, by path
_LISTED = 5


def take() -> dict[str, Any]:
    """How good a copy would be: `clean`, `degraded` (some things are lost) or `hostile` (a library will not work)."""
    hostile = _hostile()
    lost = [*_threads(), *_children(), *hostile]
    return {"quality": "hostile" if hostile else "degraded" if lost else "clean", "lost": lost}


def pause_openmp() -> None:
    """Have every OpenMP runtime end its threads; it starts them again when needed, here and in the copy.

    Without this a copy that uses scikit-learn or PyTorch waits for ever for threads it does not have.
    """
    if len(os.listdir("/proc/self/task")) == 1:
        return
    for pause in _openmp():
        pause(_HARD)


def _openmp() -> list[Any]:
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path and os.path.basename(path).startswith(_OPENMP) and path not in _paused:
                with contextlib.suppress(OSError, AttributeError):
                    _paused[path] = ctypes.CDLL("/" + path, os.RTLD_NOLOAD | os.RTLD_NOW).omp_pause_resource_all
    return list(_paused.values())


def _threads() -> list[str]:
    """Python threads but for those of idle pools, which are made again."""
    idle = repairs.idle_pool_threads()
    names = [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread() and thread not in idle
    ]
    return _few("thread", names)


def _children() -> list[str]:
    return _few("child process", [str(pid) for pid in processes.children(os.getpid())])


def _hostile() -> list[str]:
    """Libraries whose own threads no copy can have again."""
    found = []
    if "polars" in sys.modules:
        found.append("polars (it stands still in a copy)")
    if "grpc" in sys.modules:
        found.append("grpc (its channels do not work in a copy)")
    if "ray" in sys.modules:
        found.append("ray (its connection is gone)")
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            found.append("CUDA (the device does not work in a copy)")
    return found


def _few(what: str, names: list[str]) -> list[str]:
    shown = [f"{what} {name}"[:100] for name in names[:_LISTED]]
    return [*shown, f"{len(names) - _LISTED} more"] if len(names) > _LISTED else shown
