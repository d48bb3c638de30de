"""A guest's linear memory, seen through the window that was built into its component: which pages differ, and what is
in them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from quire.runtimes.wasm.host.guest import PAGE
from quire.runtimes.wasm.host.python.calls import Instance

_WASM_PAGE = 65536
_AT_ONCE = 64  # pages that go through the window together: its own memory never shrinks

Sums = tuple[int, ...]
"""A sum for each page of a memory."""


class Memory:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

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
        found: dict[int, bytes] = {}
        for some in _portions(numbers):
            asked = struct.pack(f"<{len(some)}I", *some).decode("latin-1")
            data = self._instance.call("memory-gather", asked).encode("latin-1")
            found.update((number, data[at * PAGE : (at + 1) * PAGE]) for at, number in enumerate(some))
        return found

    def write(self, pages: dict[int, bytes]) -> None:
        for some in _portions(pages):
            data = b"".join(struct.pack("<I", number) + pages[number] for number in some)
            self._instance.call("memory-scatter", data.decode("latin-1"))


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
