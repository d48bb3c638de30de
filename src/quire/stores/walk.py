"""The way down from a folder to a file in it, never through a link or a mount: whoever works there may be hostile.

Linux's openat2 does that in one call. Where there is none, or a filter forbids it, each step is opened by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_OPENAT2 = 437  # its number on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 1, 2, 4, 8
_RESOLVE = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_TRIES = 100  # of a call that something moved meanwhile made fail
_PATH = getattr(os, "O_PATH", 0)  # of Linux: opens nothing, so that no device notices
FOLDER = _PATH | os.O_DIRECTORY


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


class Walk:
    def __init__(self, *, openat2: bool | None = None) -> None:
        """`openat2` says whether to use it; None: where it is there."""
        self.openat2 = _has_openat2() if openat2 is None else openat2

    @contextmanager
    def root(self, path: str) -> Iterator[int]:
        """The folder itself, opened. One that was exchanged for a link is not it."""
        folder = os.open(path, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)

    def open(self, folder: int, steps: tuple[str, ...], flags: int, mode: int = 0) -> int:
        """What lies there, as a descriptor. Raises OSError: ELOOP where a link is on the way, EXDEV a mount."""
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        if self.openat2:
            return _openat2(folder, "/".join(steps) or ".", flags, mode)
        return _stepwise(folder, steps, flags, mode)

    @contextmanager
    def opened(self, folder: int, steps: tuple[str, ...], flags: int) -> Iterator[int]:
        found = self.open(folder, steps, flags)
        try:
            yield found
        finally:
            os.close(found)

    def status(self, folder: int, steps: tuple[str, ...]) -> os.stat_result | None:
        """What lies there, without opening it; None where nothing does. A link is said to be one."""
        with contextlib.suppress(FileNotFoundError):
            if not _PATH and steps:
                with self.opened(folder, steps[:-1], FOLDER) as above:
                    return os.stat(steps[-1], dir_fd=above, follow_symlinks=False)
            with self.opened(folder, steps, _PATH) as found:
                return os.fstat(found)
        return None


def _openat2(folder: int, path: str, flags: int, mode: int) -> int:
    how = _How(flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    for _ in range(_TRIES):
        found = _libc.syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        why = ctypes.get_errno()
        if why not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(why, os.strerror(why), path)


def _has_openat2() -> bool:
    if sys.platform != "linux":
        return False
    with Walk(openat2=False).root("/") as folder:
        try:
            os.close(_openat2(folder, ".", FOLDER, 0))
        except OSError:
            return False
    return True


def _stepwise(folder: int, steps: tuple[str, ...], flags: int, mode: int) -> int:
    mount = _mount(folder)
    here = os.dup(folder)
    try:
        for number, step in enumerate(steps or (".",), 1):
            last = number >= len(steps)
            try:
                there = os.open(step, flags if last else FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=here)
            except NotADirectoryError:
                if stat.S_ISLNK(os.stat(step, dir_fd=here, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), step) from None
                raise
            os.close(here)
            here = there
            if _mount(here) != mount:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), step)
    except BaseException:
        os.close(here)
        raise
    return here


def _mount(descriptor: int) -> str:
    """Which mount it is on; "" where the system does not say."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:  # noqa: PTH123 - a plain open is quicker
            return next((line for line in lines if line.startswith("mnt_id:")), "")
    except OSError:
        return ""
