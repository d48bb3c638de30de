"""Opens the stores that the settings name: the database, blobs and snapshots."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from quire.core.errors import OperationFailed
from quire.core.ports.snapshots import Snapshots
from quire.core.ports.store import Blobs
from quire.settings import Settings

if TYPE_CHECKING:
    from quire.stores.sql import SqlStore
    from quire.stores.temporary import TemporaryStore


def open_stores(settings: Settings) -> tuple[SqlStore, Blobs]:
    from quire.stores.blobs import FileBlobs

    if settings.store.kind == "memory":
        temporary = open_temporary()
        return temporary, FileBlobs(temporary.folder / "blobs")
    from quire.stores.sql import SqlStore

    try:
        settings.store.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return SqlStore(settings.store.data_dir), FileBlobs(settings.store.data_dir / "blobs")
    except OSError as error:
        raise _unusable(settings.store.data_dir, error) from error


def open_snapshots(settings: Settings, stack: AsyncExitStack) -> Snapshots | None:
    if settings.store.kind == "memory":
        return None
    from quire.stores.snapshots.store import FileSnapshots

    try:
        snapshots = FileSnapshots(settings.store.data_dir / "snapshots")
    except OSError as error:
        raise _unusable(settings.store.data_dir, error) from error
    stack.push_async_callback(snapshots.close)
    return snapshots


def _unusable(data_dir: Path, error: OSError) -> OperationFailed:
    why = f"The data directory {data_dir} cannot be used: {error.strerror}."
    return OperationFailed(f"{why} Set store.data_dir to another folder.")


def open_temporary() -> TemporaryStore:
    from quire.stores.temporary import TemporaryStore

    try:
        return TemporaryStore()
    except OSError as error:
        folder = tempfile.gettempdir()
        raise OperationFailed(
            f"The temporary folder {folder} cannot be used: {error.strerror}. Set TMPDIR to another."
        ) from error
