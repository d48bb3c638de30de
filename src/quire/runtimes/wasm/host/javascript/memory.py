"""A guest's memory as the pages in which it differs from that of one just made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.runtimes.wasm.host.guest import PAGE
from quire.runtimes.wasm.host.javascript.exports import Exports

_CHUNK = 16 * PAGE
_ZEROS = bytes(_CHUNK)
_BLOCKS = (1 << 20, 1 << 16, 1 << 13)  # bytes that are tried to be had
_MOST = 8192
_BLANK = bytes(_BLOCKS[0])


def differing(exports: Exports, base: bytes, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """The pages that are not as they were, by number; beyond the base they were zeros."""
    size = exports.size()
    for start in range(begin - begin % _CHUNK, size, _CHUNK):
        chunk = exports.read(start, min(_CHUNK, size - start))
        known, offset = (base, start) if start < len(base) else (_ZEROS, 0)
        if known.startswith(chunk, offset):  # compares in place; a memoryview would compare byte by byte
            continue
        for at in range(0, len(chunk), PAGE):
            page = chunk[at : at + PAGE]
            if not known.startswith(page, offset + at):
                yield (start + at) // PAGE, page


def pages(exports: Exports, base: bytes, start: int) -> dict[int, bytes]:
    """Those from `start` on: what lies before it is a stack on which nothing is."""
    return dict(differing(exports, base, start))


def put(exports: Exports, base: bytes, size: int, given: Mapping[int, bytes]) -> None:
    """Have the memory be that: what is not given is as it was at first."""
    exports.grow(size)
    for number, _page in list(differing(exports, base)):
        if number not in given:
            start = number * PAGE
            exports.write(start, base[start : start + PAGE].ljust(PAGE, b"\0"))
    for number, data in given.items():
        exports.write(number * PAGE, data)


def sweep(exports: Exports) -> None:
    """Have what is free be zeros, so that no image holds it. The memory must not be able to grow meanwhile."""
    taken: list[tuple[int, int]] = []
    for size in _BLOCKS:
        while len(taken) < _MOST and (at := exports.wasm_malloc(size)):
            taken.append((at, size))
    for at, size in taken:
        exports.write(at, _BLANK[:size])
    for at, _size in taken:
        exports.wasm_free(at)
