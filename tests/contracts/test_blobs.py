"""One suite for every Blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.core.errors import NotFound
from quire.core.model import (
    Blob,
)
from quire.core.ports.store import Blobs
from quire.stores.blobs import FileBlobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return FileBlobs(tmp_path / "blobs")


async def test_equal_bytes_are_one_blob(blobs: Blobs) -> None:
    for data in (b"", b"\x00\xff" * 1000):
        blob = await blobs.put(data)
        assert await blobs.put(data) == blob and blob.size == len(data)
        assert await blobs.get(blob) == data


async def test_missing_blob_raises_not_found(blobs: Blobs) -> None:
    with pytest.raises(NotFound, match="Run the cell again"):
        await blobs.get(Blob(digest="0" * 64, size=1))


async def test_damaged_blob_is_reported(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blob = await blobs.put(b"right")
    (tmp_path / blob.digest[:2] / blob.digest[2:]).write_bytes(b"wrong")
    with pytest.raises(NotFound, match="damaged"):
        await blobs.get(blob)
