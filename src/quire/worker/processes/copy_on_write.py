"""Copy pages that cells write often right after a fork, instead of one by one during the next cell.

After a fork all memory is shared with the copy, and the first write to a page copies it. Most cells write where the
cell before did: to the interpreter's own data.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re

_PAGE_BYTES = mmap.PAGESIZE
_MAX_PAGES = 2048  # a cell that wrote more wrote data, which the next one may not touch
_MAX_MAPPING_BYTES = 64 << 20  # larger mappings hold data
_WRITABLE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw-p ", re.MULTILINE)
_PRESENT, _SWAPPED, _FILE, _EXCLUSIVE = 0x80, 0x40, 0x20, 0x01  # in the highest byte of an entry of /proc/self/pagemap
_IS_EXCLUSIVE = bytes(byte & (_PRESENT | _SWAPPED | _FILE | _EXCLUSIVE) == _PRESENT | _EXCLUSIVE for byte in range(256))
_MADV_POPULATE_WRITE = 23  # Linux 5.14; older systems refuse it

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def written_pages() -> list[tuple[int, int]]:
    """Address and length of the memory written since the last checkpoint; empty if that is much."""
    ranges: list[tuple[int, int]] = []
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps, open("/proc/self/pagemap", "rb") as pages:
        for begin, end in ((int(begin, 16), int(end, 16)) for begin, end in _WRITABLE.findall(maps.read())):
            if end - begin <= _MAX_MAPPING_BYTES:
                entries = os.pread(pages.fileno(), (end - begin) // _PAGE_BYTES * 8, begin // _PAGE_BYTES * 8)
                ranges += _ranges(begin, entries[7::8].translate(_IS_EXCLUSIVE))
    return ranges if sum(length for _, length in ranges) <= _MAX_PAGES * _PAGE_BYTES else []


def _ranges(begin: int, exclusive: bytes) -> list[tuple[int, int]]:
    return [(begin + run.start() * _PAGE_BYTES, len(run[0]) * _PAGE_BYTES) for run in re.finditer(rb"\x01+", exclusive)]


def copy_pages(ranges: list[tuple[int, int]]) -> None:
    for address, length in ranges:
        _libc.madvise(address, length, _MADV_POPULATE_WRITE)  # fails where memory is gone
