"""What cells keep writing to is copied right after a fork, while nobody waits, and not page by page in the next cell.

A fork leaves all memory shared with the copy, and the first write to a page copies that page. A cell mostly writes
where the one before it did: to what the interpreter itself works with.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re

_PAGE = mmap.PAGESIZE
_MOST = 2048  # pages: a cell that wrote more wrote data, which the next one may never touch
_LARGE = 64 << 20  # bytes: larger mappings hold data
_WRITABLE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw-p ", re.MULTILINE)
_PRESENT, _SWAPPED, _FILE, _EXCLUSIVE = 0x80, 0x40, 0x20, 0x01  # in the highest byte of an entry of /proc/self/pagemap
_OWN = bytes(byte & (_PRESENT | _SWAPPED | _FILE | _EXCLUSIVE) == _PRESENT | _EXCLUSIVE for byte in range(256))
_MADV_POPULATE_WRITE = 23  # Linux 5.14; before it nothing happens

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def written_pages() -> list[tuple[int, int]]:
    """Address and length of what this process wrote since its newest copy was taken; nothing where that is much."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps, open("/proc/self/pagemap", "rb") as pages:
        for begin, end in ((int(begin, 16), int(end, 16)) for begin, end in _WRITABLE.findall(maps.read())):
            if end - begin <= _LARGE:
                entries = os.pread(pages.fileno(), (end - begin) // _PAGE * 8, begin // _PAGE * 8)
                found += _runs(begin, entries[7::8].translate(_OWN))
    return found if sum(length for _, length in found) <= _MOST * _PAGE else []


def _runs(begin: int, own: bytes) -> list[tuple[int, int]]:
    return [(begin + run.start() * _PAGE, len(run[0]) * _PAGE) for run in re.finditer(rb"\x01+", own)]


def copy_pages(places: list[tuple[int, int]]) -> None:
    for address, length in places:
        _libc.madvise(address, length, _MADV_POPULATE_WRITE)  # fails where memory is gone by now
