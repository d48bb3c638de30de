"""A guest's memory as the system has it mapped into this process, on Linux: which pages were ever written to is asked
of the system, and none of the others is looked at."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.runtimes.wasm.host.guest import PAGE

_POPULATE_READ, _POPULATE_WRITE = 22, 23  # of madvise()
_PROC = Path("/proc/self")
_WRITTEN = bytes(bool(flags & 0xC0) and not flags & 0x20 for flags in range(256))
"""By the highest byte of what the system says of a page: it is in memory or swapped out, and no file's own."""
_READ = bytes(flags & 0xA0 == 0xA0 for flags in range(256))
"""It is in memory, and a file's."""

_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ ([0-9]+)", re.MULTILINE)
_RUN = re.compile(rb"\x01+")

_LINUX = sys.platform == "linux"
_libc: Any = ctypes.CDLL(None) if _LINUX else None
if _LINUX:
    _libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True, kw_only=True)
class Touched:
    """A byte for each page, 1 or 0: whether it was written to, though it may hold what it held before; whether it was
    only read, or is beside one that was."""

    written: bytes
    read: bytes

    def numbers(self) -> list[int]:
        """Of the pages written to."""
        return [number for run in _RUN.finditer(self.written) for number in range(*run.span())]

    def both(self, other: Touched, end: int) -> Touched:
        """What is so in both, before that page."""
        return Touched(written=_both(self.written, other.written, end), read=_both(self.read, other.read, end))


def _both(one: bytes, other: bytes, end: int) -> bytes:
    return (int.from_bytes(one[:end], "big") & int.from_bytes(other[:end], "big")).to_bytes(end, "big")


class Mapped:
    def __init__(self, start: int) -> None:
        self._start = start

    def touched(self, size: int) -> Touched:
        """Of its first so many bytes. Raises OSError."""
        with (_PROC / "pagemap").open("rb", buffering=0) as file:
            told = os.pread(file.fileno(), size // PAGE * 8, self._start // PAGE * 8)
        if len(told) != size // PAGE * 8:
            raise OSError("the system does not tell of all pages")
        flags = told[7::8]
        return Touched(written=flags.translate(_WRITTEN), read=flags.translate(_READ))

    def read(self, number: int) -> bytes:
        return ctypes.string_at(self._start + number * PAGE, PAGE)

    def write(self, number: int, page: bytes) -> None:
        ctypes.memmove(self._start + number * PAGE, page, PAGE)

    def differs(self, other: Mapped, number: int) -> bool:
        """Whether that page is not the same in both."""
        return bool(_libc.memcmp(self._start + number * PAGE, other._start + number * PAGE, PAGE))

    def touch(self, touched: Touched) -> None:
        """Have these pages in place before anything is done with them, where the system can."""
        for pages, how in ((touched.written, _POPULATE_WRITE), (touched.read, _POPULATE_READ)):
            for run in _RUN.finditer(pages):
                if _libc.madvise(self._start + run.start() * PAGE, len(run[0]) * PAGE, how):
                    return

    def begins_with(self, mark: bytes) -> bool:
        """Read by the system: it may be another guest's, and gone this moment."""
        with contextlib.suppress(OSError), (_PROC / "mem").open("rb", buffering=0) as file:
            return os.pread(file.fileno(), len(mark), self._start) == mark
        return False


def a_mark() -> bytes:
    """A page that is nowhere else."""
    return secrets.token_bytes(PAGE)


def marked(mark: bytes, size: int) -> Mapped | None:
    """The memory of so many bytes whose first page is this mark; None where the system does not show it."""
    if not _LINUX or os.sysconf("SC_PAGESIZE") != PAGE:
        return None
    try:
        for start, end in _areas((_PROC / "maps").read_bytes()):
            found = Mapped(start)
            if end - start >= size and found.begins_with(mark):
                return found if found.touched(size).written[0] else None
    except OSError:
        pass
    return None


def _areas(maps: bytes) -> Iterator[tuple[int, int]]:
    """Neighbouring parts as one, where a file is among them: what a guest begins with is a file's."""
    start = end = files = 0
    for first, last, inode in _lines(maps):
        if first != end:
            if files:
                yield start, end
            start, files = first, 0
        end, files = last, files + bool(inode)
    if files:
        yield start, end


def _lines(maps: bytes) -> Iterable[tuple[int, int, int]]:
    return ((int(first, 16), int(last, 16), int(inode)) for first, last, inode in _LINE.findall(maps))
