"""This Python as if it were on another system, for Quire's own modules: of what that system does not have they find
nothing. PYTHONASIF names it; the hosts of guests are told of it, too, since their environment keeps such names."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import sys
import types
import warnings
from typing import Any

_LINUX = """
O_PATH O_TMPFILE P_PID P_PIDFD WEXITED WNOWAIT copy_file_range eventfd fdatasync getrandom getxattr memfd_create
pidfd_open posix_fadvise posix_fallocate preadv prlimit pwritev sched_getaffinity sched_setaffinity sendfile setns
setresuid setxattr splice unshare waitid
"""
_POSIX = """
O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG chown chroot confstr fchdir fchmod fchown
fork forkpty fwalk getegid geteuid getgid getgroups getloadavg getpgid getpgrp getuid killpg lchown lockf mkfifo nice
openpty pread pwrite readv register_at_fork setgroups setpgid setsid setuid statvfs sync sysconf uname wait wait3 wait4
fstatvfs writev
"""
_SIGNALS = """
SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 SIGUSR2 SIGXCPU SIGXFSZ pthread_sigmask setitimer
"""
_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")


_BINARY = 0x8000  # Windows's O_BINARY, which Linux takes for O_LARGEFILE


class _Leaner(types.ModuleType):
    """A module with some of its names gone, and some of its own."""

    def __init__(self, whole: types.ModuleType, gone: str, **own: Any) -> None:
        super().__init__(whole.__name__)
        self.__dict__.update({"_whole": whole, "_gone": frozenset(gone.split()), **own})

    def __getattr__(self, name: str) -> Any:
        if name in self._gone:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on {_system}")
        return getattr(self._whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._whole, name, value)


def _is_quire(whose: dict[str, Any]) -> bool:
    """Whether a module is Quire's, by its package and not by its path: the folder that holds the project, and with it
    every library in its .venv, may be called quire too."""
    return str(whose.get("__package__") or whose.get("__name__", "")).partition(".")[0] == "quire"


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if _is_quire(globals or {}):
        if _system == "win32" and name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on {_system}", name=name)
        if name in _leaner:
            return _leaner[name]
    return _plain_import(name, globals, locals, fromlist, level)


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """As Windows does it: a file that is not said to be of bytes is one of text, and a folder is not opened."""
    if (not flags & _BINARY and path != os.devnull) or dir_fd is not None:
        raise AssertionError(f"os.open({path!r}) needs O_BINARY, and no dir_fd")
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return _opened(path, flags, mode)


def _unless_open(change: Any, targets: int) -> Any:
    """Windows renames, replaces and removes no file that is open."""

    def changed(*paths: Any, **given: Any) -> None:
        for path in paths[:targets] if not given else ():
            for each in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.stat(f"/proc/self/fd/{each}"), os.lstat(path)) and os.path.isfile(path):
                        raise PermissionError(errno.EACCES, "Permission denied: it is open", str(path))
        change(*paths, **given)

    return changed


def _locking(file: int, mode: int, length: int) -> None:
    """Of msvcrt: a range of bytes from where the file is read; it is not shared."""
    if os.lseek(file, 0, os.SEEK_CUR) != 2**31 - 2:
        raise AssertionError("bytes that others read would be locked")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "Permission denied") from error


def _library(name: str | None, *more: Any, **given: Any) -> ctypes.CDLL:
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    return ctypes.CDLL(name, *more, **given)


def _not_there(*_: Any) -> None:
    raise NotImplementedError


def _be_windows() -> None:
    own = {"name": "nt", "supports_dir_fd": set(), "supports_fd": set(), "O_BINARY": _BINARY, "open": _open}
    _leaner["os"] = _Leaner(os, f"{_LINUX} {_POSIX}", **own)
    _leaner["signal"] = _Leaner(signal, _SIGNALS)
    _leaner["ctypes"] = _Leaner(ctypes, "", CDLL=_library)
    _leaner["msvcrt"] = _Leaner(types.ModuleType("msvcrt"), "", LK_NBLCK=2, locking=_locking)
    _leaner["asyncio.windows_utils"] = _Leaner(types.ModuleType("windows_utils"), "", Popen=subprocess.Popen)
    for name, targets in {"unlink": 1, "remove": 1, "rename": 2, "replace": 2}.items():
        setattr(os, name, _unless_open(getattr(os, name), targets))
    for name in ("add_signal_handler", "add_reader", "add_writer"):
        setattr(asyncio.SelectorEventLoop, name, _not_there)
    warnings.filterwarnings("error", category=EncodingWarning, module=r"quire(\.|$)")  # it is not UTF-8 there


_plain_import = builtins.__import__
_opened = os.open
_system = os.environ.get("PYTHONASIF", "")
_leaner: dict[str, types.ModuleType] = {}
if _system:
    builtins.__import__ = _import
    _leaner["sys"] = _Leaner(sys, "", platform=_system)
    if _system == "win32":
        _be_windows()
    else:
        _leaner["os"] = _Leaner(os, _LINUX)
