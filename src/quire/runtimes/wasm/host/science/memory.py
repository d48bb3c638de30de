"""A guest's memory, which begins as a file that all guests have mapped: a page is a guest's own once written to."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.runtimes.wasm.host.guest import PAGE
from quire.runtimes.wasm.host.science.calls import Functions

_SYSTEM = Path("/proc/self/pagemap")
_PRESENT, _SWAPPED, _OF_A_FILE = 0x80, 0x40, 0x20  # in the last byte of what it says of a page
_OWN = b"\1"
_KINDS = bytes(bool(said & (_PRESENT | _SWAPPED)) and not said & _OF_A_FILE for said in range(256))
_CHUNK = 64 * PAGE
_ZEROS = bytes(PAGE)
_FIXED = 0x10  # MAP_FIXED, on Linux and on macOS


@dataclass(frozen=True, kw_only=True)
class Base:
    """The memory that every guest begins with."""

    file: int  # its descriptor
    size: int  # bytes
    data: mmap.mmap  # the same, to be looked at

    @classmethod
    def open(cls, path: Path) -> Base:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        size = os.fstat(file).st_size
        return cls(file=file, size=size, data=mmap.mmap(file, size, access=mmap.ACCESS_READ))

    def lay(self, functions: Functions) -> None:
        """Have a new guest's memory be this. Raises Trapped where it may not be so large."""
        functions.grow(self.size)
        if not _map(functions.address(), self.size, self.file):
            for at in range(0, self.size, _CHUNK):
                functions.write(at, self.data[at : at + _CHUNK])


def differing(functions: Functions, base: Base) -> dict[int, bytes]:
    """The pages that are not as they were at first, by number."""
    found: dict[int, bytes] = {}
    memory, known = functions.view(), base.data
    for number in _touched(functions):
        at = number * PAGE
        page = bytes(memory[at : at + PAGE])
        if page != (known[at : at + PAGE] if at < base.size else _ZEROS):
            found[number] = page
    return found


def write(functions: Functions, pages: Mapping[int, bytes]) -> None:
    memory = functions.view()
    for number, page in pages.items():
        memory[number * PAGE : (number + 1) * PAGE] = page


def own(functions: Functions) -> int:
    """Bytes that this guest alone holds; all that it could have, where the system does not tell."""
    told = _told(functions)
    return functions.size() if told is None else PAGE * told.count(_OWN)


def _touched(functions: Functions) -> Iterable[int]:
    """Pages that may differ: those that are the guest's own, where the system tells, else all."""
    told = _told(functions)
    return range(functions.size() // PAGE) if told is None else (found.start() for found in re.finditer(_OWN, told))


def _told(functions: Functions) -> bytes | None:
    """A byte for each page, of what the system knows of it."""
    if mmap.PAGESIZE != PAGE:
        return None
    pages, first = functions.size() // PAGE, functions.address() // PAGE
    with contextlib.suppress(OSError), _SYSTEM.open("rb", buffering=0) as file:
        file.seek(8 * first)
        told = file.read(8 * pages)
        return told[7::8].translate(_KINDS) if len(told) == 8 * pages else None
    return None


def _map(address: int, size: int, file: int) -> bool:
    """The file's bytes there, each page of the guest's own once it is written to."""
    if os.name != "posix" or address % mmap.PAGESIZE or size % mmap.PAGESIZE:
        return False
    system = ctypes.CDLL(None, use_errno=True).mmap
    system.restype = ctypes.c_void_p
    system.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    return bool(system(address, size, protection, mmap.MAP_PRIVATE | _FIXED, file, 0) == address)
