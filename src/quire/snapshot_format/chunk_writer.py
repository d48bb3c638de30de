"""Cut a snapshot into chunks and write those the store does not have."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quire import platform_compat
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import Entry, Manifest, Whole

_SMALL_SEGMENT_BYTES = 4096  # smaller segments share chunks with their neighbours
_BOUNDARY_INTERVAL = 16  # about one small segment of 16 begins a chunk, chosen by its name
_WORTHWHILE_RATIO = 0.9  # compressed chunks are used if they are smaller than this
_SAMPLE_BYTES = 4096  # bytes of a chunk that are compressed first, as a trial
_MAX_COMPRESSED_BYTES = 16 << 20  # of a buffer; compressing a larger one would take seconds
_RESERVED_DISK_BYTES = 8 << 20  # left free on disk, or a tenth of a small disk
_BATCH_BYTES = 1 << 20  # written at once

_crc32, _compress, _write = zlib.crc32, zlib.compress, os.write  # bound before cells run and may replace them


class ChunkWriter:
    """Writes chunks to the draft file, each once and none that the base has."""

    def __init__(self, file: int, known: set[bytes]) -> None:
        self._file = file
        self._known = known
        self._entries: list[Entry] = []
        self._waiting: list[bytes] = []
        self._size = 0  # bytes of `_waiting`
        self.written = 0  # bytes of chunks

    def stream(self, segments: Iterable[tuple[str, bytes]]) -> Whole:
        pieces = list(_cut(segments))
        return self._whole(sum(map(len, pieces)), [self._chunk(piece, compress=True) for piece in pieces])

    def buffer(
        self, data: memoryview, *, key: str, earlier: list[bytes] | None, changed: Callable[[int], bool]
    ) -> Whole:
        """`earlier` are the names of its chunks in the base, still right for chunks that are not `changed`."""
        names = []
        compress = 0 < len(data) <= _MAX_COMPRESSED_BYTES and _compresses(data[: chunks.MAX_CHUNK_BYTES])
        for number, at in enumerate(range(0, len(data), chunks.MAX_CHUNK_BYTES)):
            if earlier is not None and not changed(number):
                names.append(earlier[number])
            else:
                names.append(self._chunk(data[at : at + chunks.MAX_CHUNK_BYTES], compress=compress))
        return self._whole(len(data), names, key, data.readonly)

    def finish(self, manifest: Manifest) -> tuple[int, int, int]:
        """Write the rest; the sizes of chunks, entries and manifest in the draft."""
        self._flush()
        entries, words = chunks.dump_entries(self._entries), manifest.dump()
        for part in (entries, words):
            _write_all(self._file, part)
        return self.written, len(entries), len(words)

    def _whole(self, length: int, names: list[bytes], key: str = "", read_only: bool = False) -> Whole:
        nodes = tuple(
            self._chunk(b"".join(names[at : at + chunks.NODE_NAMES]), compress=False)
            for at in range(0, len(names), chunks.NODE_NAMES)
        )
        return Whole(length, nodes, key, read_only)

    def _chunk(self, data: Any, *, compress: bool) -> bytes:
        name = chunks.chunk_name(data)
        if name not in self._known:
            self._known.add(name)
            stored = _compressed(data) if compress else None
            self._entries.append(Entry(name, len(data), len(stored or data), stored is not None))
            self._waiting.append(stored or data)
            self._size += len(stored or data)
            if self._size >= _BATCH_BYTES:
                self._flush()
        return name

    def _flush(self) -> None:
        total, free = platform_compat.disk_of(self._file)
        if free < self._size + min(_RESERVED_DISK_BYTES, total // 10):
            raise OSError(errno.ENOSPC, "the disk is nearly full")  # the rest is for cells
        for part in self._waiting:
            _write_all(self._file, part)
        self.written += self._size
        self._waiting, self._size = [], 0


def _cut(segments: Iterable[tuple[str, bytes]]) -> Iterator[Any]:
    """Chunks of joined small segments or of one large segment. Cuts do not move when other segments change."""
    together = bytearray()
    for name, data in segments:
        is_small = len(data) < _SMALL_SEGMENT_BYTES
        is_boundary = _crc32(name.encode()) % _BOUNDARY_INTERVAL == 0
        if together and (not is_small or len(together) + len(data) > chunks.MAX_CHUNK_BYTES or is_boundary):
            yield bytes(together)
            together.clear()
        if is_small:
            together += data
        else:
            view = memoryview(data)
            for at in range(0, len(data), chunks.MAX_CHUNK_BYTES):
                yield view[at : at + chunks.MAX_CHUNK_BYTES]
    if together:
        yield bytes(together)


def _compressed(data: Any) -> bytes | None:
    if len(data) > 2 * _SAMPLE_BYTES and not _compresses(data[:_SAMPLE_BYTES]):
        return None
    packed = _compress(data, 1)
    return packed if len(packed) < _WORTHWHILE_RATIO * len(data) else None


def _compresses(sample: Any) -> bool:
    return len(_compress(sample, 1)) < _WORTHWHILE_RATIO * len(sample)


def _write_all(file: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[_write(file, view) :]


def read_and_close(descriptor: int) -> bytes:
    """The content of a file; the descriptor is closed."""
    try:
        size, data = os.fstat(descriptor).st_size, bytearray()
        while len(data) < size and (part := platform_compat.pread(descriptor, size - len(data), len(data))):
            data += part
        return bytes(data)
    finally:
        os.close(descriptor)
