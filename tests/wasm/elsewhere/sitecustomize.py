"""This Python as if it were on another system, for Quire's own modules: of what that system does not have they find
nothing. PYTHONASIF names it; the hosts of guests are told of it, too, since their environment keeps such names."""

from __future__ import annotations

import builtins
import os
import signal
import sys
import types
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
writev
"""
_SIGNALS = "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 SIGUSR2 SIGXCPU pthread_sigmask setitimer"
_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")


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


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    whose = globals or {}
    if whose.get("__name__", "").startswith("quire") or "/quire/" in str(whose.get("__file__", "")):
        if _system == "win32" and name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on {_system}", name=name)
        if name in _leaner:
            return _leaner[name]
    return _plain_import(name, globals, locals, fromlist, level)


_plain_import = builtins.__import__
_system = os.environ.get("PYTHONASIF", "")
_leaner: dict[str, types.ModuleType] = {}
if _system:
    builtins.__import__ = _import
    _leaner["sys"] = _Leaner(sys, "", platform=_system)
    if _system == "win32":
        _leaner["os"] = _Leaner(os, f"{_LINUX} {_POSIX}", name="nt", supports_dir_fd=set(), supports_fd=set())
        _leaner["signal"] = _Leaner(signal, _SIGNALS)
    else:
        _leaner["os"] = _Leaner(os, _LINUX)
