"""Cutting what is to be written into chunks, and writing those the store does not have."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quire import systems
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import Entry, Manifest, Whole

_SMALL = 4096  # bytes: a segment under this shares a chunk with its neighbours
_APART = 16  # of so many small segments about one begins a chunk, the same ones every time
_PAYS = 0.9  # compressed to less than this part, it is kept so
_SAMPLE = 4096  # bytes of a chunk that are tried first
_QUICK = 16 << 20  # bytes: a larger buffer is not compressed, or it would take seconds to write and to read
_SPARE = 8 << 20  # bytes of disk that are left free, of a small one a tenth
_BATCH = 1 << 20  # bytes written at once

_crc32, _compress, _write = zlib.crc32, zlib.compress, os.write  # bound before any cell ran


class Cutter:
    """Writes chunks into the draft's file, each once, and none that the base has."""

    def __init__(self, file: int, known: set[bytes]) -> None:
        self._file = file
        self._known = known
        self._entries: list[Entry] = []
        self._waiting: list[bytes] = []
        self._size = 0  # of what waits
        self.written = 0  # bytes of chunks

    def stream(self, segments: Iterable[tuple[str, bytes]]) -> Whole:
        pieces = list(_pieces(segments))
        return self._whole(sum(map(len, pieces)), [self._chunk(piece, compress=True) for piece in pieces])

    def buffer(
        self, data: memoryview, *, key: str, earlier: list[bytes] | None, changed: Callable[[int], bool]
    ) -> Whole:
        """`earlier` are the names its chunks had in the base; one that is not `changed` has it still."""
        names = []
        compress = 0 < len(data) <= _QUICK and _worth(data[: chunks.SIZE])
        for number, at in enumerate(range(0, len(data), chunks.SIZE)):
            if earlier is not None and not changed(number):
                names.append(earlier[number])
            else:
                names.append(self._chunk(data[at : at + chunks.SIZE], compress=compress))
        return self._whole(len(data), names, key, data.readonly)

    def finish(self, manifest: Manifest) -> tuple[int, int, int]:
        """Bytes of chunks, entries and manifest, which is all the draft holds."""
        self._flush()
        entries, words = chunks.dump_entries(self._entries), manifest.dump()
        for part in (entries, words):
            _write_all(self._file, part)
        return self.written, len(entries), len(words)

    def _whole(self, length: int, names: list[bytes], key: str = "", read_only: bool = False) -> Whole:
        nodes = tuple(
            self._chunk(b"".join(names[at : at + chunks.FANOUT]), compress=False)
            for at in range(0, len(names), chunks.FANOUT)
        )
        return Whole(length, nodes, key, read_only)

    def _chunk(self, data: Any, *, compress: bool) -> bytes:
        name = chunks.digest(data)
        if name not in self._known:
            self._known.add(name)
            stored = _smaller(data) if compress else None
            self._entries.append(Entry(name, len(data), len(stored or data), stored is not None))
            self._waiting.append(stored or data)
            self._size += len(stored or data)
            if self._size >= _BATCH:
                self._flush()
        return name

    def _flush(self) -> None:
        total, free = systems.disk_of(self._file)
        if free < self._size + min(_SPARE, total // 10):
            raise OSError(errno.ENOSPC, "the disk is nearly full")  # the last bytes are for cells
        for part in self._waiting:
            _write_all(self._file, part)
        self.written += self._size
        self._waiting, self._size = [], 0


def _pieces(segments: Iterable[tuple[str, bytes]]) -> Iterator[Any]:
    """Small segments together, large ones apart; what lies between two cuts does not move when something else
    changes."""
    together = bytearray()
    for name, data in segments:
        small = len(data) < _SMALL
        if together and (not small or len(together) + len(data) > chunks.SIZE or _crc32(name.encode()) % _APART == 0):
            yield bytes(together)
            together.clear()
        if small:
            together += data
        else:
            view = memoryview(data)
            for at in range(0, len(data), chunks.SIZE):
                yield view[at : at + chunks.SIZE]
    if together:
        yield bytes(together)


def _smaller(data: Any) -> bytes | None:
    if len(data) > 2 * _SAMPLE and not _worth(data[:_SAMPLE]):
        return None
    packed = _compress(data, 1)
    return packed if len(packed) < _PAYS * len(data) else None


def _worth(sample: Any) -> bool:
    return len(_compress(sample, 1)) < _PAYS * len(sample)


def _write_all(file: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[_write(file, view) :]


def read_whole(descriptor: int) -> bytes:
    """A file that was handed over, from its beginning; it is closed."""
    try:
        size, data = os.fstat(descriptor).st_size, bytearray()
        while len(data) < size and (part := systems.pread(descriptor, size - len(data), len(data))):
            data += part
        return bytes(data)
    finally:
        os.close(descriptor)
