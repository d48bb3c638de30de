"""Open folders by descriptors, which stay valid when code exchanges a folder on the way for a link.

Linux's openat2 goes all the way in one call. Where the kernel does not have it, or a seccomp filter forbids it, each
step is opened by itself. Where the system cannot open folders, `by_name` uses paths.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ctypes

_OPENAT2 = 437  # number of the system call on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 1, 2, 4, 8
_RESOLVE = _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_MAX_TRIES = 100  # of an openat2 that failed because of a rename meanwhile
_PATH = getattr(os, "O_PATH", 0)  # Linux only: opens nothing, so that no device notices
_DIRECTORY, _NOFOLLOW = getattr(os, "O_DIRECTORY", 0), getattr(os, "O_NOFOLLOW", 0)
_PASSED, _LISTED = _PATH | _DIRECTORY, os.O_RDONLY | _DIRECTORY


class FdWalker:
    def __init__(self, *, openat2: bool | None = None, cross_mounts: bool = False) -> None:
        """`openat2` says whether to use that system call; None: where it works."""
        self.openat2 = _has_openat2() if openat2 is None else openat2
        opener = _openat2 if self.openat2 else _step_by_step
        self._open: _Open = functools.partial(opener, cross_mounts=cross_mounts)

    @contextmanager
    def open_root(self, path: str, *, listed: bool = False) -> Iterator[FdFolder]:
        folder = os.open(path, (_LISTED if listed else _PASSED) | _NOFOLLOW)
        try:
            yield FdFolder(folder, self._open)
        finally:
            os.close(folder)


class FdFolder:
    def __init__(self, descriptor: int, open_: _Open) -> None:
        self._here = descriptor
        self._open = open_

    @property
    def path(self) -> Path:
        return Path(f"/proc/self/fd/{self._here}")

    @contextmanager
    def open_folder(self, steps: tuple[str, ...], *, listed: bool = True) -> Iterator[FdFolder]:
        with self.open_file(steps, _LISTED if listed else _PASSED) as found:
            yield FdFolder(found, self._open)

    @contextmanager
    def open_file(self, steps: tuple[str, ...], flags: int) -> Iterator[int]:
        found = self._open(self._here, steps, flags | _NOFOLLOW)
        try:
            yield found
        finally:
            os.close(found)

    def status(self, steps: tuple[str, ...]) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            if not _PATH and steps:
                with self.open_folder(steps[:-1], listed=False) as above:
                    return above.stat(steps[-1])
            with self.open_file(steps, _PATH) as found:
                return os.fstat(found)
        return None

    def scan(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._here)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._here, follow_symlinks=False)

    def make_folder(self, name: str) -> None:
        os.mkdir(name, dir_fd=self._here)
        with self.open_file((name,), _LISTED) as made:
            set_owner(made, self.stat("."))

    def create(self, name: str) -> int:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o666, dir_fd=self._here)

    def rename(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self._here, dst_dir_fd=self._here)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._here)

    def remove_folder(self, name: str) -> None:
        os.rmdir(name, dir_fd=self._here)

    def sync(self) -> None:
        with self.open_file((), _LISTED) as itself:
            os.fsync(itself)


def set_owner(made: int, like: os.stat_result) -> None:
    """Give an open file or folder the owner of another, where this process may."""
    if hasattr(os, "fchown") and like.st_uid != os.fstat(made).st_uid:
        with contextlib.suppress(PermissionError):
            os.fchown(made, like.st_uid, like.st_gid)


class _Open(Protocol):
    def __call__(self, folder: int, steps: tuple[str, ...], flags: int, /) -> int: ...


def _openat2(folder: int, steps: tuple[str, ...], flags: int, /, *, cross_mounts: bool) -> int:
    path = "/".join(steps) or "."
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE if cross_mounts else _RESOLVE | _NO_XDEV)
    for _ in range(_MAX_TRIES):
        found, why = _call_openat2(folder, path, how)
        if found >= 0:
            return found
        if why not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(why, os.strerror(why), path)


def _call_openat2(folder: int, path: str, how: bytes) -> tuple[int, int]:
    """Return the descriptor, negative where it failed, and the error number."""
    import ctypes

    found = _libc().syscall(_OPENAT2, folder, os.fsencode(path), how, len(how))
    return int(found), ctypes.get_errno()


@functools.cache
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _has_openat2() -> bool:
    if sys.platform != "linux":
        return False
    folder = os.open("/", _PASSED)
    try:
        os.close(_openat2(folder, (), _PASSED, cross_mounts=False))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _step_by_step(folder: int, steps: tuple[str, ...], flags: int, /, *, cross_mounts: bool) -> int:
    mount = "" if cross_mounts else _mount_of(folder)
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
            if not cross_mounts and _mount_of(here) != mount:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), step)
    except BaseException:
        os.close(here)
        raise
    return here


def _mount_of(descriptor: int) -> str:
    """Return which mount a descriptor is on; "" where the system does not say."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:  # noqa: PTH123 - a plain open is quicker
            return next((line for line in lines if line.startswith("mnt_id:")), "")
    except OSError:
        return ""
