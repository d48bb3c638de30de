"""The port Blobs: files named by the SHA-256 of their content, written completely or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import anyio.to_thread

from quire import platform_compat
from quire.core.errors import NotFound, OperationFailed
from quire.core.model import Blob
from quire.stores import refusals


class FileBlobs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    async def put(self, data: bytes) -> Blob:
        return await anyio.to_thread.run_sync(self._put, data)

    async def get(self, blob: Blob) -> bytes:
        return await anyio.to_thread.run_sync(self._get, blob)

    def _put(self, data: bytes) -> Blob:
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if not path.exists():
            try:
                path.parent.mkdir(exist_ok=True)
                write_atomically(path, data)
            except OSError as error:
                if (
                    isinstance(error, platform_compat.IN_USE) and path.exists()
                ):  # written meanwhile, and open in another process
                    return Blob(digest=digest, size=len(data))
                raise OperationFailed(
                    f"An output of {len(data):,} bytes could not be kept: {error.strerror}. "
                    "Earlier cells are intact. Free some space and run the cell again."
                ) from error
        return Blob(digest=digest, size=len(data))

    def _get(self, blob: Blob) -> bytes:
        try:
            data = self._path(blob.digest).read_bytes()
        except OSError:
            raise NotFound(refusals.blob_gone(blob.digest)) from None
        if hashlib.sha256(data).hexdigest() != blob.digest:
            raise NotFound(refusals.blob_gone(blob.digest))
        return data

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a new file, sync it, then rename it, so that a crash leaves no incomplete file under the name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        platform_compat.sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
