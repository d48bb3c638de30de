"""What WebAssembly does not have, said plainly by what asks for it."""

from __future__ import annotations

import errno
import importlib.abc
import importlib.machinery
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from quire.worker.shell import import_hooks

_HERE = "Python runs in WebAssembly here"
_MODULES = {
    "no other machine's libraries can be loaded": "ctypes _ctypes",
    "there is no network": "ssl _ssl",
    "there are no processes": "multiprocessing.shared_memory multiprocessing.managers multiprocessing.pool pty "
    "multiprocessing.synchronize multiprocessing.connection _posixsubprocess _multiprocessing _posixshmem",
    "there is no operating system below": "fcntl grp mmap pwd resource syslog termios tty",
    "there is no terminal": "curses _curses idlelib readline tkinter _tkinter turtle turtledemo",
    "it was built without it": "bz2 _bz2 lzma _lzma _zstd compression.zstd dbm ensurepip venv _interpreters "
    "concurrent.interpreters",
}
WHY = {name: why for why, names in _MODULES.items() for name in names.split()}
_SLICE = 0.02  # seconds: between two of them a run can be stopped

polls: list[Callable[[], None]] = []
"""The kernel's, called now and then while code sleeps."""


def install(has: Callable[[str], bool] = lambda name: False) -> None:
    """Of the modules it names, those that this interpreter `has` all the same can be imported."""
    sys.meta_path.insert(2, _Absent({name: why for name, why in WHY.items() if not has(name)}))
    threading.Thread.start = _no_threads  # type: ignore[method-assign]
    time.sleep = _sleep  # type: ignore[assignment]  # what can be slept for is the real one's to say
    for name in ("connect", "connect_ex", "bind", "listen"):
        setattr(socket.socket, name, _no_network)
    socket.getaddrinfo = socket.create_server = _no_network
    socket.socketpair = _no_network
    os.system = os.popen = _no_processes
    import_hooks.after_import("multiprocessing.process", _without_processes)


class _Absent(importlib.abc.MetaPathFinder):
    def __init__(self, why: dict[str, str]) -> None:
        self._why = why

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        why = self._why.get(name)
        if why is not None:
            raise ModuleNotFoundError(f"No module named {name!r}: {_HERE}, and {why}.", name=name)
        return None


def _no_threads(self: threading.Thread) -> NoReturn:
    raise RuntimeError(f"can't start new thread: {_HERE}, and there are no threads. Call it directly, or use asyncio.")


def _no_network(*given: Any, **named: Any) -> NoReturn:
    raise OSError(
        errno.ENOTSUP, f"{_HERE}, and there is no network. What can be reached from here are capabilities: see caps"
    )


def _no_processes(*given: Any, **named: Any) -> NoReturn:
    raise OSError(errno.ENOTSUP, f"{_HERE}, and there are no processes")


def _without_processes(module: Any) -> None:
    module.BaseProcess.start = _no_processes


def _sleep(seconds: float, /, *, _sleep: Any = time.sleep, _now: Any = time.monotonic) -> None:
    """Sleep so many seconds."""
    end = _now() + seconds
    _sleep(min(seconds, _SLICE))  # which also says what is wrong with the number
    for poll in polls:
        poll()
    while (left := end - _now()) > 0:
        _sleep(min(left, _SLICE))
        for poll in polls:
            poll()
