"""The way down from a folder to a file in it, never through a link or a mount: whoever works there may be hostile.

Folders are held by descriptors. Linux's openat2 goes all the way in one call; where there is none, or a filter forbids
it, each step is opened by itself. Where a system opens no folders at all, `named` goes by paths.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_OPENAT2 = 437  # its number on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 1, 2, 4, 8
_RESOLVE = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_TRIES = 100  # of a call that something moved meanwhile made fail
_PATH = getattr(os, "O_PATH", 0)  # of Linux: opens nothing, so that no device notices
_DIRECTORY, _NOFOLLOW = getattr(os, "O_DIRECTORY", 0), getattr(os, "O_NOFOLLOW", 0)
_PASSED, _LISTED = _PATH | _DIRECTORY, os.O_RDONLY | _DIRECTORY


class Folder(Protocol):
    """A folder that the way led to. Errors are OSError: ELOOP where a link is on the way, EXDEV a mount."""

    def below(self, steps: tuple[str, ...], *, listed: bool = True) -> contextlib.AbstractContextManager[Folder]:
        """A folder in it; unless `listed`, its names cannot be had."""
        ...

    def file(self, steps: tuple[str, ...], flags: int) -> contextlib.AbstractContextManager[int]: ...

    def status(self, steps: tuple[str, ...]) -> os.stat_result | None:
        """What lies there, without opening it; None where nothing does. A link is said to be one."""
        ...

    def names(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]: ...

    def look(self, name: str) -> os.stat_result:
        """At one of its names, or at itself, which is `.`."""
        ...

    def make(self, name: str) -> None:
        """A folder, which belongs to whom this one does."""
        ...

    def create(self, name: str) -> int:
        """A new file, to write."""
        ...

    def rename(self, name: str, to: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync(self) -> None: ...


class Walk(Protocol):
    def root(self, path: str, *, listed: bool = False) -> contextlib.AbstractContextManager[Folder]:
        """The folder itself. One that was exchanged for a link is not it."""
        ...


class Held:
    def __init__(self, *, openat2: bool | None = None) -> None:
        """`openat2` says whether to use it; None: where it is there."""
        self.openat2 = _has_openat2() if openat2 is None else openat2

    @contextmanager
    def root(self, path: str, *, listed: bool = False) -> Iterator[_Held]:
        folder = os.open(path, (_LISTED if listed else _PASSED) | _NOFOLLOW)
        try:
            yield _Held(folder, _openat2 if self.openat2 else _stepwise)
        finally:
            os.close(folder)


class _Held:
    def __init__(self, descriptor: int, open_: _Open) -> None:
        self._here = descriptor
        self._open = open_

    @contextmanager
    def below(self, steps: tuple[str, ...], *, listed: bool = True) -> Iterator[_Held]:
        with self.file(steps, _LISTED if listed else _PASSED) as found:
            yield _Held(found, self._open)

    @contextmanager
    def file(self, steps: tuple[str, ...], flags: int) -> Iterator[int]:
        found = self._open(self._here, steps, flags | _NOFOLLOW)
        try:
            yield found
        finally:
            os.close(found)

    def status(self, steps: tuple[str, ...]) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            if not _PATH and steps:
                with self.below(steps[:-1], listed=False) as above:
                    return above.look(steps[-1])
            with self.file(steps, _PATH) as found:
                return os.fstat(found)
        return None

    def names(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._here)

    def look(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._here, follow_symlinks=False)

    def make(self, name: str) -> None:
        os.mkdir(name, dir_fd=self._here)
        with self.file((name,), _LISTED) as made:
            give(made, self.look("."))

    def create(self, name: str) -> int:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o666, dir_fd=self._here)

    def rename(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self._here, dst_dir_fd=self._here)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._here)

    def sync(self) -> None:
        with self.file((), _LISTED) as itself:
            os.fsync(itself)


def give(made: int, like: os.stat_result) -> None:
    """What is made for the code that works there is that code's."""
    if hasattr(os, "fchown") and like.st_uid != os.fstat(made).st_uid:
        with contextlib.suppress(PermissionError):
            os.fchown(made, like.st_uid, like.st_gid)


class _Open(Protocol):
    def __call__(self, folder: int, steps: tuple[str, ...], flags: int, /) -> int: ...


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(folder: int, steps: tuple[str, ...], flags: int, /) -> int:
    path = "/".join(steps) or "."
    how = _How(flags | os.O_CLOEXEC, 0, _RESOLVE)
    for _ in range(_TRIES):
        found = _libc().syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        why = ctypes.get_errno()
        if why not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(why, os.strerror(why), path)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _has_openat2() -> bool:
    if sys.platform != "linux":
        return False
    folder = os.open("/", _PASSED)
    try:
        os.close(_openat2(folder, (), _PASSED))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _stepwise(folder: int, steps: tuple[str, ...], flags: int, /) -> int:
    mount = _mount(folder)
    here = os.dup(folder)
    try:
        for number, step in enumerate(steps or (".",), 1):
            last = number >= len(steps)
            try:
                there = os.open(step, flags if last else _PASSED | _NOFOLLOW, dir_fd=here)
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
