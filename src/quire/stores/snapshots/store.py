"""Snapshots in a folder: an index in SQLite, chunks in packs beside it, each chunk once, each snapshot signed."""

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
from quire.stores.blobs import write_whole
from quire.stores.snapshots import publishing, recipes, sweeping
from quire.stores.snapshots.packs import full
from quire.stores.snapshots.shelf import Shelf

_AT_ONCE = 2  # drafts that are copied at the same time: a small one need not wait for a large one


class FileSnapshots:
    def __init__(self, folder: Path, *, pack_bytes: int = 256 << 20) -> None:
        self._shelf = Shelf(folder, pack_bytes)
        self._bases = recipes.Bases(self._shelf)
        self._drafts: dict[int, Draft] = {}  # by identity: numbers of closed files are given to others
        self._publishing = anyio.CapacityLimiter(_AT_ONCE)

    async def begin(self, notebook: NotebookId, base: Snapshot | None) -> Draft:
        like = -1 if base is None else await self._base(base)
        try:
            file = await anyio.to_thread.run_sync(_nameless, self._shelf.folder)
        except OSError as error:
            if like >= 0:
                os.close(like)
            raise full(error) from error
        draft = Draft(notebook=notebook, file=file, base=like)
        self._drafts[id(draft)] = draft
        return draft

    async def _base(self, snapshot: Snapshot) -> int:
        try:
            return await self._bases.recipe(snapshot)
        except (OperationFailed, BadSnapshot, OSError):
            return -1  # one that is damaged costs a larger draft, no more

    async def publish(self, draft: Draft, written: Written, *, run: RunId | None, name: str) -> Snapshot:
        try:
            async with self._publishing:
                return await publishing.publish(self._shelf, draft, written, run, name)
        except BadSnapshot as error:
            raise OperationFailed(f"The snapshot was not kept: {error}. The last snapshot stands.") from error
        except OSError as error:
            raise full(error) from error

    def abandon(self, draft: Draft) -> None:
        if self._drafts.pop(id(draft), None) is None:
            return
        for file in (draft.file, draft.base):
            if file >= 0:
                os.close(file)

    async def of(self, notebook: NotebookId) -> list[Snapshot]:
        return await self._shelf.index.snapshots(notebook)

    async def open(self, snapshot: Snapshot) -> Recipe:
        return await recipes.recipe(self._shelf, snapshot)

    async def values(self, snapshot: Snapshot) -> dict[str, Any]:
        said = (await recipes.said_in(self._shelf, snapshot)).about.get("values")
        return said if isinstance(said, dict) else {}

    async def write_out(self, notebook: str, name: str, text: str) -> str:
        path = self._shelf.folder / "saved" / file_name(notebook) / f"{file_name(name)}.json"
        try:
            await anyio.to_thread.run_sync(_write_out, path, text)
        except OSError as error:
            raise OperationFailed(
                f"The state was saved, but {path}, its copy to read, could not be written: {error.strerror}."
            ) from error
        return str(path)

    async def drop(self, snapshots: list[SnapshotId]) -> None:
        await self._shelf.index.drop(snapshots)

    async def sweep(self, *, dry: bool = False) -> Swept:
        try:
            return await sweeping.sweep(self._shelf, dry=dry)
        except OSError as error:
            raise OperationFailed(f"The snapshots could not be swept: {error.strerror}. None was lost.") from error

    async def close(self) -> None:
        for draft in list(self._drafts.values()):
            self.abandon(draft)
        await self._shelf.index.close()


def file_name(name: str) -> str:
    """The name where it can be one, else what it resembles, told apart by a digest."""
    safe = "".join(each if each.isalnum() or each in " _-." else "_" for each in name[:60]).lstrip(".").strip()
    if safe and safe == name and len(safe.encode()) <= 100:
        return name
    mark = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{safe.encode()[:80].decode(errors='ignore')}-{mark}"


def _write_out(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode("utf-8", "backslashreplace"))  # JSON says half a character in the same way


def _nameless(folder: Path) -> int:
    """A file that is gone when nobody has it open, however that comes."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return os.dup(file.fileno())
