"""Packs: files that chunks are appended to. Everything here blocks, so it runs in a thread."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from quire import platform_compat
from quire.snapshot_format.chunks import BadSnapshot, chunk_name

_COPY_BYTES = 1 << 20
_RESERVED_BYTES = 8 << 20  # of the disk, left for cells; of a small disk a tenth
_WRITE, _READ = os.O_RDWR | platform_compat.BYTES, os.O_RDONLY | platform_compat.BYTES


class Pack(NamedTuple):
    id: int
    file: str
    notebook: str
    bytes: int  # that are in use; what follows was left by a crash
    full: int


class ChunkRow(NamedTuple):
    """Where a chunk is."""

    name: bytes
    pack: int
    offset: int
    length: int
    stored: int
    compressed: int


class PackWriter:
    """Appends to a pack that is locked for this process."""

    def __init__(self, file: str, handle: int) -> None:
        self.id = 0
        self.file = file
        self.begin = self.end = 0
        self._handle = handle

    def start(self, pack: int, length: int) -> bool:
        """Append after the first `length` bytes and cut off what follows. False if the file is shorter."""
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
            written = platform_compat.pwrite(self._handle, view, self.end)
            self.end += written
            view = view[written:]

    def sync(self) -> None:
        os.fsync(self._handle)

    def undo(self) -> None:
        """Cut off what was appended."""
        if self.end > self.begin:
            os.ftruncate(self._handle, self.begin)
            self.end = self.begin

    def close(self) -> None:
        os.close(self._handle)


class Packs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def check_space(self, size: int) -> None:
        """Raises OSError if `size` bytes more would nearly fill the disk."""
        disk = shutil.disk_usage(self._folder)
        if size and disk.free < size + min(_RESERVED_BYTES, disk.total // 10):
            raise OSError(errno.ENOSPC, "the disk is nearly full")

    def create(self) -> PackWriter:
        file = f"{uuid4().hex}.pack"
        handle = os.open(self._folder / file, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            platform_compat.try_lock(handle)  # succeeds: no other process knows the name yet
            platform_compat.sync_folder(self._folder)
        except BaseException:
            os.close(handle)
            raise
        return PackWriter(file, handle)

    def open_writer(self, file: str) -> PackWriter | None:
        """None if the file is gone or another process writes to it."""
        try:
            handle = os.open(self._folder / file, _WRITE)
        except FileNotFoundError:
            return None
        is_locked = False
        try:
            is_locked = platform_compat.try_lock(handle)
        finally:
            if not is_locked:
                os.close(handle)
        return PackWriter(file, handle) if is_locked else None

    def sizes(self, packs: Iterable[Pack]) -> dict[int, int]:
        """Return the sizes of the files, without those that are gone."""
        sizes = {}
        for pack in packs:
            with contextlib.suppress(FileNotFoundError):
                sizes[pack.id] = (self._folder / pack.file).stat().st_size
        return sizes

    def open(self, file: str) -> int:
        return os.open(self._folder / file, _READ)

    def copy_chunks(self, pack: int, rows: Iterable[ChunkRow], files: dict[int, str]) -> tuple[int, list[ChunkRow]]:
        """Copy chunks to a new file without a name. Return it, and where they are in it, as of a pack `pack`."""
        with tempfile.TemporaryFile(dir=self._folder) as file:
            copy = os.dup(file.fileno())
        copied, end = [], 0
        try:
            in_order = sorted(rows, key=lambda row: (row.pack, row.offset))
            for source, group in groupby(in_order, key=lambda row: row.pack):
                handle = self.open(files[source])
                try:
                    for row in group:
                        _copy_bytes(handle, row.offset, copy, end, row.stored)
                        copied.append(row._replace(pack=pack, offset=end))
                        end += row.stored
                finally:
                    os.close(handle)
        except BaseException:
            os.close(copy)
            raise
        return copy, copied

    def read(
        self, rows: Iterable[ChunkRow], files: dict[int, str]
    ) -> Iterator[tuple[ChunkRow, tuple[bytes, bytes] | None]]:
        """Yield the content of each chunk and its stored bytes, None if it is damaged or gone."""
        with contextlib.ExitStack() as stack:
            handles: dict[int, int | None] = {}
            for row in rows:
                if row.pack not in handles:
                    handles[row.pack] = self._open_until_exit(stack, files.get(row.pack))
                handle = handles[row.pack]
                try:
                    yield row, None if handle is None else _read_chunk(handle, row)
                except BadSnapshot:
                    yield row, None

    def _open_until_exit(self, stack: contextlib.ExitStack, file: str | None) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            if file is not None:
                handle = self.open(file)
                stack.callback(os.close, handle)
                return handle
        return None

    def remove(self, files: Iterable[str]) -> int:
        """Delete files and return how many bytes they had."""
        freed = 0
        for file in files:
            path = self._folder / file
            with contextlib.suppress(FileNotFoundError, *platform_compat.IN_USE):  # in use: a later sweep deletes it
                size = path.stat().st_size
                path.unlink()
                freed += size
        platform_compat.sync_folder(self._folder)
        return freed

    def list_files(self) -> set[str]:
        return {path.name for path in self._folder.glob("*.pack")}


def read_exactly(handle: int, length: int, offset: int) -> bytes:
    """Raises BadSnapshot if the file ends before."""
    data = platform_compat.pread(handle, length, offset)
    if len(data) == length:
        return data
    parts = [data]
    while data and (missing := length - sum(map(len, parts))):
        data = platform_compat.pread(handle, missing, offset + length - missing)
        parts.append(data)
    whole = b"".join(parts)
    if len(whole) != length:
        raise BadSnapshot("a part of it is cut off")
    return whole


def decompress(data: bytes | memoryview, length: int) -> bytes:
    """Return `length` bytes; raises BadSnapshot if there are more or fewer. Never makes more than one byte too many."""
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(data, length + 1)
    except zlib.error as error:
        raise BadSnapshot("a chunk of it cannot be decompressed") from error
    if len(content) != length or not decompressor.eof or decompressor.unused_data:
        raise BadSnapshot("a chunk of it has another length than it says")
    return content


def _read_chunk(handle: int, row: ChunkRow) -> tuple[bytes, bytes]:
    """Return the content of a chunk and its stored bytes."""
    data = read_exactly(handle, row.stored, row.offset)
    content = decompress(data, row.length) if row.compressed else data
    if chunk_name(content) != row.name:
        raise BadSnapshot("a chunk of it is damaged")
    return content, data


def _copy_bytes(source: int, offset: int, target: int, at: int, length: int) -> None:
    while length:
        data = platform_compat.pread(source, min(length, _COPY_BYTES), offset)
        if not data:
            raise OSError(errno.EIO, "a pack ends too early")
        at += platform_compat.pwrite(target, data, at)
        offset += len(data)
        length -= len(data)
