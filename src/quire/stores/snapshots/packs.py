"""Packs: files that chunks are appended to, and turns between those who write them and who sweeps them.

Everything here blocks, for a thread, but for `turn`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import anyio

from quire import platform_compat
from quire.core.errors import OperationFailed
from quire.snapshot_format.chunks import BadSnapshot, chunk_name

_PAUSE = 0.01  # seconds between two looks whether it is our turn
_PATIENCE = 60.0  # seconds to wait for it
_COPIED = 1 << 20  # bytes at once
_WRITE, _READ = os.O_RDWR | platform_compat.BYTES, os.O_RDONLY | platform_compat.BYTES


class Pack(NamedTuple):
    id: int
    file: str
    notebook: str
    bytes: int  # that count
    full: int


_SPARE = 8 << 20  # bytes of disk that are left free, of a small one a tenth


class Row(NamedTuple):
    """Where a chunk lies."""

    name: bytes
    pack: int
    offset: int
    length: int
    stored: int
    compressed: int


class Tail:
    """The end of a pack, with nobody else there."""

    def __init__(self, file: str, handle: int) -> None:
        self.id = 0
        self.file = file
        self.begin = self.end = 0
        self._handle = handle

    def start(self, pack: int, length: int) -> bool:
        """Go on behind what counts; False where not even that is there."""
        size = os.fstat(self._handle).st_size
        if size < length:
            return False
        if size > length:
            os.ftruncate(self._handle, length)
        self.id, self.begin, self.end = pack, length, length
        return True

    def append(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            done = platform_compat.pwrite(self._handle, view, self.end)
            self.end += done
            view = view[done:]

    def sync(self) -> None:
        os.fsync(self._handle)

    def cut(self) -> None:
        """As it was before."""
        if self.end > self.begin:
            os.ftruncate(self._handle, self.begin)
            self.end = self.begin

    def close(self) -> None:
        os.close(self._handle)


class Packs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def make_room(self, wanted: int) -> None:
        """Raises OSError where that many bytes would fill the disk: the last ones are for cells."""
        disk = shutil.disk_usage(self._folder)
        if wanted and disk.free < wanted + min(_SPARE, disk.total // 10):
            raise OSError(errno.ENOSPC, "the disk is nearly full")

    def create(self) -> Tail:
        file = f"{uuid4().hex}.pack"
        handle = os.open(self._folder / file, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            platform_compat.try_lock(handle)  # nobody else knows its name yet
            platform_compat.sync_folder(self._folder)
        except BaseException:
            os.close(handle)
            raise
        return Tail(file, handle)

    def tail(self, file: str) -> Tail | None:
        """None where it is gone, or another process writes there: then take another."""
        try:
            handle = os.open(self._folder / file, _WRITE)
        except FileNotFoundError:
            return None
        ours = False
        try:
            ours = platform_compat.try_lock(handle)
        finally:
            if not ours:
                os.close(handle)
        return Tail(file, handle) if ours else None

    def sizes(self, packs: Iterable[Pack]) -> dict[int, int]:
        """How large they really are; one that is gone is not there."""
        found = {}
        for pack in packs:
            with contextlib.suppress(FileNotFoundError):
                found[pack.id] = (self._folder / pack.file).stat().st_size
        return found

    def open(self, file: str) -> int:
        return os.open(self._folder / file, _READ)

    def excerpt(self, pack: int, rows: Iterable[Row], files: dict[int, str]) -> tuple[int, list[Row]]:
        """A file without a name that holds these chunks and nothing else, and where they lie in it, as of `pack`."""
        with tempfile.TemporaryFile(dir=self._folder) as made:
            copy = os.dup(made.fileno())
        placed, end = [], 0
        try:
            for source, some in groupby(sorted(rows, key=lambda row: (row.pack, row.offset)), key=lambda row: row.pack):
                handle = self.open(files[source])
                try:
                    for row in some:
                        _copy(handle, row.offset, copy, end, row.stored)
                        placed.append(row._replace(pack=pack, offset=end))
                        end += row.stored
                finally:
                    os.close(handle)
        except BaseException:
            os.close(copy)
            raise
        return copy, placed

    def contents(self, rows: Iterable[Row], files: dict[int, str]) -> Iterator[tuple[Row, bytes | None]]:
        """The bytes of chunks, checked; None for one that is damaged or not there."""
        return ((row, both and both[0]) for row, both in self._read(rows, files))

    def stored(self, rows: Iterable[Row], files: dict[int, str]) -> Iterator[tuple[Row, bytes | None]]:
        """The same, as they lie there."""
        return ((row, both and both[1]) for row, both in self._read(rows, files))

    def _read(self, rows: Iterable[Row], files: dict[int, str]) -> Iterator[tuple[Row, tuple[bytes, bytes] | None]]:
        with contextlib.ExitStack() as stack:
            handles: dict[int, int | None] = {}
            for row in rows:
                if row.pack not in handles:
                    handles[row.pack] = self._open_within(stack, files.get(row.pack))
                handle = handles[row.pack]
                try:
                    yield row, None if handle is None else _content(handle, row)
                except BadSnapshot:
                    yield row, None

    def _open_within(self, stack: contextlib.ExitStack, file: str | None) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            if file is not None:
                handle = self.open(file)
                stack.callback(os.close, handle)
                return handle
        return None

    def remove(self, files: Iterable[str]) -> int:
        """How many bytes that freed."""
        freed = 0
        for file in files:
            path = self._folder / file
            with contextlib.suppress(FileNotFoundError, *platform_compat.IN_USE):  # a later sweep finds it
                size = path.stat().st_size
                path.unlink()
                freed += size
        platform_compat.sync_folder(self._folder)
        return freed

    def files(self) -> set[str]:
        return {each.name for each in self._folder.glob("*.pack")}


def read_exactly(handle: int, length: int, offset: int) -> bytes:
    data = platform_compat.pread(handle, length, offset)
    if len(data) == length:
        return data
    pieces = [data]
    while data and (missing := length - sum(map(len, pieces))):
        data = platform_compat.pread(handle, missing, offset + length - missing)
        pieces.append(data)
    whole = b"".join(pieces)
    if len(whole) != length:
        raise BadSnapshot("a part of it is cut off")
    return whole


def unpacked(data: bytes | memoryview, length: int) -> bytes:
    """What was compressed; never more than it says, however much there would be."""
    opened = zlib.decompressobj()
    try:
        content = opened.decompress(data, length + 1)
    except zlib.error as error:
        raise BadSnapshot("a chunk of it cannot be decompressed") from error
    if len(content) != length or not opened.eof or opened.unused_data:
        raise BadSnapshot("a chunk of it has another length than it says")
    return content


def _content(handle: int, row: Row) -> tuple[bytes, bytes]:
    """A chunk's bytes, and how they are stored."""
    data = read_exactly(handle, row.stored, row.offset)
    content = unpacked(data, row.length) if row.compressed else data
    if chunk_name(content) != row.name:
        raise BadSnapshot("a chunk of it is damaged")
    return content, data


@contextlib.asynccontextmanager
async def turn(path: Path, *, alone: bool) -> AsyncIterator[None]:
    """Many may have a turn at once, or one `alone`, whichever process they are in."""
    try:
        lock = os.open(path, _WRITE | os.O_CREAT, 0o600)
    except OSError as error:
        raise full(error) from error
    try:
        with anyio.move_on_after(_PATIENCE) as waited:
            while not platform_compat.try_lock(lock, shared=not alone):  # noqa: ASYNC110  # nobody would tell us
                await anyio.sleep(_PAUSE)
        if waited.cancelled_caught:
            raise OperationFailed("The snapshots are busy in this or another server: nothing was changed. Call again.")
        yield
    finally:
        os.close(lock)


def full(error: OSError) -> OperationFailed:
    advice = "Free some space; the next snapshot is tried anew." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return OperationFailed(
        f"The snapshot could not be kept: {error.strerror}. The last snapshot stands. {advice}".rstrip()
    )


def _copy(source: int, offset: int, target: int, at: int, length: int) -> None:
    while length:
        data = platform_compat.pread(source, min(length, _COPIED), offset)
        if not data:
            raise OSError(errno.EIO, "a pack ends too early")
        at += platform_compat.pwrite(target, data, at)
        offset += len(data)
        length -= len(data)
