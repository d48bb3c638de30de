"""Split a stream of bytes into lines, without storing lines that are too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MAX_LINE_BYTES = 64 * 2**20  # bytes
_REFUSED_LINE_END_BYTES = 256  # kept of each end


class LineProtocol(asyncio.Protocol):
    """`on_line` gets each line; of one that is too long only its two ends, joined by a zero byte."""

    def __init__(
        self, on_line: Callable[[bytes], None], on_end: Callable[[], None], longest: int = MAX_LINE_BYTES
    ) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def data_received(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._add(first)
        for part in others:
            self._finish()
            self._add(part)

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._longest:
            whole = b"".join(self._parts)
            self._parts = [whole[:_REFUSED_LINE_END_BYTES], whole[-_REFUSED_LINE_END_BYTES:]]

    def _finish(self) -> None:
        line = (b"\0" if self._size > self._longest else b"").join(self._parts)
        self._parts, self._size = [], 0
        if line:
            self._on_line(line)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()
