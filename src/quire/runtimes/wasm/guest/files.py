"""The files a notebook has open: how many, of which kinds, and how they come through an image.

A descriptor is known outside the guest's memory too. So before an image is taken the files are closed under the
objects that have them, and opened again afterwards, there and wherever the image is put back, as the same numbers.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_AUDITED = ("open", "sqlite3.connect", "os.scandir", "os.listdir")
_FILLERS = 4096  # numbers that are taken while one is looked for
_MISSES = 64  # numbers in a row that are not open: there are none after them


@dataclass(frozen=True)
class _Asleep:
    """A file that was closed, to be opened again."""

    number: int
    path: str
    flags: int
    position: int


class Files:
    """As an audit hook, which code cannot take off again."""

    def __init__(self) -> None:
        self.most = 0  # 0 is no limit
        self.folders = 1  # that are always open: the workspace and the mounts, which come first
        self._opened = 0  # at the most, since they were last counted
        self._asleep: list[_Asleep] = []

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        if event in _AUDITED:
            self._look_at(given[0] if given else None)
            self._count()

    def _look_at(self, path: Any) -> None:
        """A pipe or a device would hold the run up for ever."""
        if not isinstance(path, (str, bytes, os.PathLike)) or path == ":memory:":
            return
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            return
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.ENOTSUP, "Only plain files and folders can be opened from WebAssembly", os.fspath(path))

    def _count(self) -> None:
        self._opened += 1
        if not self.most or self._opened < self.most:
            return
        self._opened = sum(1 for _ in open_numbers(3 + self.folders))
        if self._opened >= self.most:
            raise OSError(
                errno.EMFILE,
                f"{self._opened} files are open, and {self.most} are the most (wasm.open_files). "
                "Close some, as `with` does",
            )

    def sleep(self) -> list[str]:
        """Close what can be opened again; what cannot is told, and will not be there where the image is put back."""
        numbers = list(open_numbers(3 + self.folders)) if self._opened else []
        self._opened = len(numbers)
        if not numbers:
            return []
        known = {_identity(os.fstat(number)): number for number in numbers}
        found: dict[int, _Asleep] = {}
        for path, flags, number in _known_paths():
            with contextlib.suppress(OSError, ValueError):
                at = number if number in numbers else known.get(_identity(os.stat(path)))
                if at is not None and _identity(os.stat(path)) == _identity(os.fstat(at)):
                    found.setdefault(at, _Asleep(at, path, flags, os.lseek(at, 0, os.SEEK_CUR)))
        self._asleep = [found[number] for number in sorted(found)]
        for each in self._asleep:
            os.close(each.number)
        return [f"the open file of descriptor {number}" for number in numbers if number not in found]

    def wake(self) -> None:
        """A number is given again when it is the one that was closed last: so it is found, and taken."""
        asleep = {each.number: each for each in self._asleep if os.path.exists(each.path)}
        fillers: list[int] = []
        self._asleep = []
        while asleep and len(fillers) < _FILLERS:
            number = os.open("/workspace", os.O_RDONLY)
            if number in asleep:
                os.close(number)
                _reopen(asleep.pop(number))
            else:
                fillers.append(number)
        for filler in fillers:
            os.close(filler)


def _reopen(file: _Asleep) -> None:
    with contextlib.suppress(OSError):  # it may be impossible to open now; its next use says so
        os.open(file.path, file.flags)
        os.lseek(file.number, file.position, os.SEEK_SET)


def open_numbers(number: int) -> Iterator[int]:
    """From that one on."""
    misses = 0
    while misses < _MISSES:
        try:
            os.fstat(number)
        except OSError:
            misses += 1
        else:
            misses = 0
            yield number
        number += 1


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _known_paths() -> Iterator[tuple[str, int, int]]:
    """Of what objects say they have open: path, how to open it again, and its number where that is known."""
    for each in gc.get_objects():
        kind = type(each)
        if kind is io.FileIO and not each.closed and isinstance(each.name, (str, bytes)):
            yield os.path.abspath(os.fsdecode(each.name)), _flags(each.mode), each.fileno()
        elif kind is sqlite3.Connection:
            with contextlib.suppress(sqlite3.Error):
                for _, _, path in each.execute("PRAGMA database_list").fetchall():
                    if path:
                        yield from ((f"{path}{more}", os.O_RDWR, -1) for more in ("", "-journal", "-wal"))


def _flags(mode: str) -> int:
    """Without what would empty it."""
    one_way = os.O_RDONLY if "r" in mode else os.O_WRONLY
    how = os.O_RDWR if "+" in mode else one_way
    return how | (os.O_APPEND if "a" in mode else 0)
