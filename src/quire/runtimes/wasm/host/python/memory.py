"""A guest's linear memory: which pages differ, and what is in them. Seen as the system has it mapped where that can be
found, else through the window that was built into its component."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterable, Iterator

from quire.runtimes.wasm.host.guest import PAGE
from quire.runtimes.wasm.host.python import mapped
from quire.runtimes.wasm.host.python.calls import Instance
from quire.runtimes.wasm.host.python.mapped import Mapped, Touched

_WASM_PAGE = 65536
_EMPTY = bytes(PAGE)
_AT_ONCE = 64  # pages that go through the window together: its own memory never shrinks

Sums = tuple[int, ...]
"""A sum for each page of a memory."""


class Memory:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.mapped: Mapped | None = None
        self._looked = False

    def find(self) -> Mapped | None:
        """Look where it is mapped, once: a mark is put into it, and looked for."""
        if not self._looked:
            self._looked = True
            first, mark = self._gather([0]), mapped.a_mark()
            self._scatter({0: mark})
            try:
                self.mapped = mapped.marked(mark, self.size())
            finally:
                self._scatter(first)
        return self.mapped

    def size(self) -> int:
        """Bytes of it."""
        return int(self._instance.call("memory-size")) * _WASM_PAGE

    def grow(self, size: int) -> bool:
        """Have it be so large at the least; whether it is."""
        lack = size - self.size()
        return lack <= 0 or self._instance.call("memory-grow", -(-lack // _WASM_PAGE)) != 0xFFFF_FFFF

    def sums(self) -> Sums:
        pages = self.size() // PAGE
        found = b"".join(
            self._instance.call("memory-sums", first, min(8192, pages - first)).encode("latin-1")
            for first in range(0, pages, 8192)
        )
        return struct.unpack(f"<{pages}Q", found)

    def read(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """The pages of these numbers."""
        if self.mapped is not None:
            return {number: self.mapped.read(number) for number in numbers}
        return self._gather(numbers)

    def write(self, pages: dict[int, bytes]) -> None:
        if self.mapped is None:
            self._scatter(pages)
            return
        for number, page in pages.items():
            self.mapped.write(number, page)

    def _gather(self, numbers: Iterable[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for some in _portions(numbers):
            asked = struct.pack(f"<{len(some)}I", *some).decode("latin-1")
            data = self._instance.call("memory-gather", asked).encode("latin-1")
            found.update((number, data[at * PAGE : (at + 1) * PAGE]) for at, number in enumerate(some))
        return found

    def _scatter(self, pages: dict[int, bytes]) -> None:
        for some in _portions(pages):
            data = b"".join(struct.pack("<I", number) + pages[number] for number in some)
            self._instance.call("memory-scatter", data.decode("latin-1"))


class Fresh:
    """A memory in which nothing has run, and nothing will: all others are held against it, from any thread."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._summed: Sums = ()
        self._often: Touched | None = None  # by each guest so far
        self.size = memory.size()
        if memory.find() is None:
            self._sums()  # now: the first image is to cost no more than those after it

    def changed(self, memory: Memory) -> list[int]:
        """The numbers of the pages that are not as in this one; beyond its end it is all zeros."""
        there, here = memory.find(), self._memory.mapped
        if there is not None and here is not None:
            with contextlib.suppress(OSError):
                return self._changed(there, here, memory.size())
        return differing(memory.sums(), self._sums())

    def pages(self, numbers: list[int]) -> dict[int, bytes]:
        """Pages as they are here, and would be beyond the end."""
        with self._lock:
            found = self._memory.read(number for number in numbers if number < self.size // PAGE)
        return {number: found.get(number, _EMPTY) for number in numbers}

    def _changed(self, there: Mapped, here: Mapped, size: int) -> list[int]:
        end, touched = self.size // PAGE, there.touched(size)
        self._often = touched.both(self._often or touched, end)
        numbers = touched.numbers()
        beyond = [number for number in numbers if number >= end and there.read(number) != _EMPTY]
        return [number for number in numbers if number < end and there.differs(here, number)] + beyond

    def warm(self, memory: Memory) -> None:
        """Have the pages of a new memory in place that every guest needs."""
        there = memory.find()
        if there is not None and self._often is not None:
            there.touch(self._often)

    def _sums(self) -> Sums:
        with self._lock:
            self._summed = self._summed or self._memory.sums()
            return self._summed


def differing(sums: Sums, base: Sums) -> list[int]:
    """The numbers of the pages that are not as in the base; beyond its end it is all zeros."""
    among = [number for number, (now, then) in enumerate(zip(sums, base, strict=False)) if now != then]
    return among + [number for number in range(len(base), len(sums)) if sums[number] != ZERO]


def _portions(numbers: Iterable[int]) -> Iterator[list[int]]:
    every = list(numbers)
    for at in range(0, len(every), _AT_ONCE):
        yield every[at : at + _AT_ONCE]


def _zero() -> int:
    """The sum of a page of zeros, as window.wat makes it."""
    whole = (1 << 64) - 1

    def turned(value: int, by: int) -> int:
        return (value << by | value >> 64 - by) & whole

    lanes = [
        (0x243F6A8885A308D3, 0x9E3779B97F4A7C15, 29),
        (0x13198A2E03707344, 0xC2B2AE3D27D4EB4F, 31),
        (0x24093822299F31D0, 0x165667B19E3779F9, 37),
        (0x082EFA98EC4E6C89, 0x27D4EB2F165667C5, 41),
    ]
    ends = []
    for value, factor, by in lanes:
        for _ in range(PAGE // 32):
            value = turned(value * factor & whole, by)
        ends.append(value)
    a, b, c, d = ends
    return ((a ^ turned(b, 17)) + (turned(c, 34) ^ turned(d, 51))) & whole


ZERO = _zero()
