"""The way down by names, where a system opens no folders (Windows): each step is looked at before it is taken.

What is exchanged between the look and the step is noticed of a file, by what was opened, and not of a folder: code that
may make links, which few may on Windows, could lead out of its workspace whoever reads there in that moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire import systems


class NoName(OSError):
    """It means something else on this system than a file of that name."""


class Named:
    @contextmanager
    def root(self, path: str, *, listed: bool = False) -> Iterator[_Named]:
        there = os.lstat(path)
        _check_folder(there, path)
        yield _Named(path, there.st_dev)


class _Named:
    def __init__(self, path: str, device: int) -> None:
        self._path = path
        self._device = device

    @contextmanager
    def below(self, steps: tuple[str, ...], *, listed: bool = True) -> Iterator[_Named]:
        yield _Named(self._way(steps), self._device)

    @contextmanager
    def file(self, steps: tuple[str, ...], flags: int) -> Iterator[int]:
        path = self._to(steps)
        seen = os.lstat(path)
        _check_no_link(seen, path)
        found = os.open(path, flags | systems.BYTES)
        try:
            there = os.fstat(found)
            if (there.st_dev, there.st_ino) != (seen.st_dev, seen.st_ino):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            yield found
        finally:
            os.close(found)

    def status(self, steps: tuple[str, ...]) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return os.lstat(self._to(steps))
        return None

    def names(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._path)

    def look(self, name: str) -> os.stat_result:
        return os.lstat(os.path.join(self._path, name))

    def make(self, name: str) -> None:
        os.mkdir(self._to((name,)))

    def create(self, name: str) -> int:
        return os.open(self._to((name,)), os.O_WRONLY | os.O_CREAT | os.O_EXCL | systems.BYTES, 0o666)

    def rename(self, name: str, to: str) -> None:
        os.replace(self._to((name,)), self._to((to,)))

    def remove(self, name: str) -> None:
        os.unlink(self._to((name,)))

    def sync(self) -> None:
        systems.sync_folder(Path(self._path))

    def _to(self, steps: tuple[str, ...]) -> str:
        """The path of a file in a folder that is no link."""
        above = self._way(steps[:-1])
        for step in steps[-1:]:
            _check_name(step)
        return os.path.join(above, *steps[-1:])

    def _way(self, steps: tuple[str, ...]) -> str:
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
    if not systems.is_name(step):
        raise NoName(errno.EINVAL, os.strerror(errno.EINVAL), step)


def _check_folder(there: os.stat_result, path: str) -> None:
    _check_no_link(there, path)
    if not stat.S_ISDIR(there.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def _check_no_link(there: os.stat_result, path: str) -> None:
    """Windows has more kinds of them than one."""
    reparsed = getattr(there, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    if stat.S_ISLNK(there.st_mode) or reparsed:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
