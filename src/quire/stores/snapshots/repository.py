"""What publishing, loading and sweeping share: the index, the packs, the key, and locks between servers."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from quire import platform_compat
from quire.core.errors import OperationFailed
from quire.stores.snapshots.index import ChunkIndex, SnapshotIndex, open_index
from quire.stores.snapshots.packs import ChunkRow, Packs
from quire.stores.snapshots.signing import load_key

_LOCK_POLL_INTERVAL_S = 0.01
_LOCK_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class PackFiles:
    """The packs at one moment, by their ids."""

    names: dict[int, str]
    notebooks: dict[int, str]
    sizes: dict[int, int]
    damaged: bool  # a file is gone or too short


@dataclass(frozen=True, kw_only=True)
class FoundChunks:
    rows: dict[bytes, ChunkRow]
    files: PackFiles


class SnapshotRepository:
    """While a caller has the shared lock, no chunk is deleted and no pack is moved."""

    def __init__(self, folder: Path, pack_bytes: int) -> None:
        """`pack_bytes`: a larger pack is full."""
        folder.mkdir(parents=True, exist_ok=True)
        self.pack_bytes = pack_bytes
        self.folder = folder
        self.key = load_key(folder)
        self.packs = Packs(folder / "packs")
        self._writer, self._reader = open_index(folder)
        self.snapshots = SnapshotIndex(self._writer, self._reader)
        self.chunks = ChunkIndex(self._writer, self._reader)

    def lock_shared(self) -> AbstractAsyncContextManager[None]:
        return _lock_file(self.folder / "turn", shared=True)

    def lock_exclusive(self) -> AbstractAsyncContextManager[None]:
        return _lock_file(self.folder / "turn", shared=False)

    def lock_sweep(self) -> AbstractAsyncContextManager[None]:
        """One sweep at a time, while others read and write."""
        return _lock_file(self.folder / "sweeping", shared=False)

    async def find_chunks(self, names: Iterable[bytes]) -> FoundChunks:
        """Return where chunks are, without those that are missing, and the packs."""
        rows = await self.chunks.find(names)
        files = await self.pack_files()  # after the rows: a pack is in place before its rows
        if files.damaged:
            rows = {name: row for name, row in rows.items() if row.offset + row.stored <= files.sizes.get(row.pack, 0)}
        return FoundChunks(rows=rows, files=files)

    async def pack_files(self) -> PackFiles:
        packs = await self.chunks.list_packs()
        sizes = await anyio.to_thread.run_sync(self.packs.sizes, packs)
        return PackFiles(
            names={pack.id: pack.file for pack in packs},
            notebooks={pack.id: pack.notebook for pack in packs},
            sizes=sizes,
            damaged=any(sizes.get(pack.id, -1) < pack.bytes for pack in packs),
        )

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()


@asynccontextmanager
async def _lock_file(path: Path, *, shared: bool) -> AsyncIterator[None]:
    """Raises OperationFailed if the lock is not free within a minute. Closing the file releases it."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | platform_compat.BYTES, 0o600)
    except OSError as error:
        raise not_saved(error) from error
    try:
        with anyio.move_on_after(_LOCK_TIMEOUT_S) as timeout:
            while not platform_compat.try_lock(lock, shared=shared):  # noqa: ASYNC110  # a file lock has no event to wait for
                await anyio.sleep(_LOCK_POLL_INTERVAL_S)
        if timeout.cancelled_caught:
            raise OperationFailed("The snapshots are busy in this or another server: nothing was changed. Call again.")
        yield
    finally:
        os.close(lock)


def not_saved(error: OSError) -> OperationFailed:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "Free some space; then the next snapshot can be saved." if is_full else ""
    return OperationFailed(
        f"The snapshot could not be kept: {error.strerror}. The last snapshot stands. {advice}".rstrip()
    )
