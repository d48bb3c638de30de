"""The port Snapshots in a folder: an index in SQLite, and packs in which each chunk is once. Snapshots are signed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from quire.core.errors import OperationFailed
from quire.core.model import NotebookId, RunId, Snapshot, SnapshotId, Swept
from quire.core.ports.snapshots import Draft, Recipe, Written
from quire.snapshot_format.chunks import BadSnapshot
from quire.stores.blobs import write_atomically
from quire.stores.snapshots import publishing, recipes, sweeping
from quire.stores.snapshots.repository import SnapshotRepository, not_saved

_MAX_PUBLISHING = 2  # drafts at the same time, so that a small one does not wait for a large one


class FileSnapshots:
    def __init__(self, folder: Path, *, pack_bytes: int = 256 << 20) -> None:
        self._repository = SnapshotRepository(folder, pack_bytes)
        self._base_recipes = recipes.BaseRecipes(self._repository)
        self._drafts: dict[int, Draft] = {}  # by id(), because the system reuses descriptors of closed files
        self._publishing = anyio.CapacityLimiter(_MAX_PUBLISHING)

    async def begin(self, notebook: NotebookId, base: Snapshot | None) -> Draft:
        base_file = -1 if base is None else await self._open_base(base)
        try:
            file = await anyio.to_thread.run_sync(_unnamed_file, self._repository.folder)
        except OSError as error:
            if base_file >= 0:
                os.close(base_file)
            raise not_saved(error) from error
        draft = Draft(notebook=notebook, file=file, base=base_file)
        self._drafts[id(draft)] = draft
        return draft

    async def _open_base(self, snapshot: Snapshot) -> int:
        try:
            return await self._base_recipes.build(snapshot)
        except (OperationFailed, BadSnapshot, OSError):
            return -1  # without it the draft is larger

    async def publish(self, draft: Draft, written: Written, *, run: RunId | None, name: str) -> Snapshot:
        try:
            async with self._publishing:
                return await publishing.publish(self._repository, draft, written, run, name)
        except BadSnapshot as error:
            raise OperationFailed(f"The snapshot was not kept: {error}. The last snapshot stands.") from error
        except OSError as error:
            raise not_saved(error) from error

    def abandon(self, draft: Draft) -> None:
        if self._drafts.pop(id(draft), None) is None:
            return
        for file in (draft.file, draft.base):
            if file >= 0:
                os.close(file)

    async def list_for_notebook(self, notebook: NotebookId) -> list[Snapshot]:
        return await self._repository.snapshots.list_for_notebook(notebook)

    async def open_recipe(self, snapshot: Snapshot) -> Recipe:
        return await recipes.build_recipe(self._repository, snapshot)

    async def load_values(self, snapshot: Snapshot) -> dict[str, Any]:
        values = (await recipes.load_manifest(self._repository, snapshot)).about.get("values")
        return values if isinstance(values, dict) else {}

    async def write_copy(self, notebook: str, name: str, text: str) -> str:
        path = self._repository.folder / "saved" / file_name(notebook) / f"{file_name(name)}.json"
        try:
            await anyio.to_thread.run_sync(_write_copy, path, text)
        except OSError as error:
            raise OperationFailed(
                f"The state was saved, but {path}, its copy to read, could not be written: {error.strerror}."
            ) from error
        return str(path)

    async def delete(self, snapshots: list[SnapshotId]) -> None:
        await self._repository.snapshots.delete(snapshots)

    async def sweep(self, *, dry: bool = False) -> Swept:
        try:
            return await sweeping.sweep(self._repository, dry=dry)
        except OSError as error:
            raise OperationFailed(f"The snapshots could not be swept: {error.strerror}. None was lost.") from error

    async def close(self) -> None:
        for draft in list(self._drafts.values()):
            self.abandon(draft)
        await self._repository.close()


def file_name(name: str) -> str:
    """Return the name if a file can have it, else a similar one with a digest."""
    safe = "".join(char if char.isalnum() or char in " _-." else "_" for char in name[:60]).lstrip(".").strip()
    if safe and safe == name and len(safe.encode()) <= 100:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{safe.encode()[:80].decode(errors='ignore')}-{digest}"


def _write_copy(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode("utf-8", "backslashreplace"))  # lone surrogates as JSON escapes them


def _unnamed_file(folder: Path) -> int:
    """The system deletes it when it is closed, also if the process is killed."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return os.dup(file.fileno())
