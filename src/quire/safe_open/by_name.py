"""Open folders by their paths, where the system cannot open folders (Windows). Each step is checked before it is taken.

A file that is exchanged after the check is noticed, by comparing it with what was opened. A folder is not: code that
may make links, which few accounts may on Windows, could in that moment lead a reader out of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire import platform_compat


class InvalidFileName(OSError):
    """On this system this is not a name of a file, but of a device, a drive or a stream."""


class PathWalker:
    @contextmanager
    def open_root(self, path: str, *, listed: bool = False) -> Iterator[PathFolder]:
        there = os.lstat(path)
        _check_folder(there, path)
        yield PathFolder(path, there.st_dev)


class PathFolder:
    def __init__(self, path: str, device: int) -> None:
        self._path = path
        self._device = device

    @property
    def path(self) -> Path:
        return Path(self._path)

    @contextmanager
    def open_folder(self, steps: tuple[str, ...], *, listed: bool = True) -> Iterator[PathFolder]:
        yield PathFolder(self._path_of_folder(steps), self._device)

    @contextmanager
    def open_file(self, steps: tuple[str, ...], flags: int) -> Iterator[int]:
        path = self._path_of_file(steps)
        seen = os.lstat(path)
        _check_no_link(seen, path)
        found = os.open(path, flags | platform_compat.BYTES)
        try:
            there = os.fstat(found)
            if (there.st_dev, there.st_ino) != (seen.st_dev, seen.st_ino):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            yield found
        finally:
            os.close(found)

    def status(self, steps: tuple[str, ...]) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return os.lstat(self._path_of_file(steps))
        return None

    def scan(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._path)

    def stat(self, name: str) -> os.stat_result:
        return os.lstat(os.path.join(self._path, name))

    def make_folder(self, name: str) -> None:
        os.mkdir(self._path_of_file((name,)))

    def create(self, name: str) -> int:
        return os.open(self._path_of_file((name,)), os.O_WRONLY | os.O_CREAT | os.O_EXCL | platform_compat.BYTES, 0o666)

    def rename(self, name: str, to: str) -> None:
        os.replace(self._path_of_file((name,)), self._path_of_file((to,)))

    def remove(self, name: str) -> None:
        os.unlink(self._path_of_file((name,)))

    def remove_folder(self, name: str) -> None:
        os.rmdir(self._path_of_file((name,)))

    def sync(self) -> None:
        platform_compat.sync_folder(Path(self._path))

    def _path_of_file(self, steps: tuple[str, ...]) -> str:
        """Return the path of a file, after a check of the folders on the way."""
        above = self._path_of_folder(steps[:-1])
        for step in steps[-1:]:
            _check_name(step)
        return os.path.join(above, *steps[-1:])

    def _path_of_folder(self, steps: tuple[str, ...]) -> str:
        path = self._path
        for step in steps:
            _check_name(step)
            path = os.path.join(path, step)
            there = os.lstat(path)
            _check_folder(there, path)
            if there.st_dev != self._device:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        return path


def _check_name(step: str) -> None:
    if not platform_compat.is_name(step):
        raise InvalidFileName(errno.EINVAL, os.strerror(errno.EINVAL), step)


def _check_folder(there: os.stat_result, path: str) -> None:
    _check_no_link(there, path)
    if not stat.S_ISDIR(there.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def _check_no_link(there: os.stat_result, path: str) -> None:
    """Windows has more kinds of links than one: all are reparse points."""
    reparsed = getattr(there, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    if stat.S_ISLNK(there.st_mode) or reparsed:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
