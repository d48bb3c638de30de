"""A guest's memory as the pages in which it differs from that of one just made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.runtimes.wasm.host.guest import PAGE
from quire.runtimes.wasm.host.javascript.exports import Exports

_CHUNK = 16 * PAGE
_ZEROS = bytes(_CHUNK)


def differing(now: memoryview, base: bytes, begin: int = 0) -> Iterator[int]:
    """The numbers of the pages that are not as they were; beyond the base they were zeros."""
    first = memoryview(base)
    for start in range(begin - begin % _CHUNK, len(now), _CHUNK):
        chunk = now[start : start + _CHUNK]
        known = first[start : start + _CHUNK] if start < len(base) else memoryview(_ZEROS)[: len(chunk)]
        if chunk == known:
            continue
        for at in range(0, len(chunk), PAGE):
            if chunk[at : at + PAGE] != known[at : at + PAGE]:
                yield (start + at) // PAGE


def pages(exports: Exports, base: bytes, start: int) -> dict[int, bytes]:
    """Those from `start` on: what lies before it is a stack on which nothing is."""
    now = exports.view()
    found = differing(now, base, start)
    return {number: bytes(now[number * PAGE : (number + 1) * PAGE]) for number in found}


def put(exports: Exports, base: bytes, size: int, given: Mapping[int, bytes]) -> None:
    """Have the memory be that: what is not given is as it was at first."""
    exports.grow(size)
    now = exports.view()
    for number in list(differing(now, base)):
        if number not in given:
            start = number * PAGE
            now[start : start + PAGE] = (base[start : start + PAGE]).ljust(PAGE, b"\0")
    for number, data in given.items():
        now[number * PAGE : (number + 1) * PAGE] = data
