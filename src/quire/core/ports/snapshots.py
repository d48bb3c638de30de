"""Snapshots of namespaces on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from quire.core.model import (
    NotebookId,
    RunId,
    Snapshot,
    SnapshotId,
    Swept,
)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A snapshot that a kernel writes: descriptors of its files. See `quire.snapshot_format`."""

    notebook: NotebookId
    file: int  # the kernel writes it
    base: int  # recipe of a similar snapshot that the kernel reads; -1: none


@dataclass(frozen=True, kw_only=True)
class Written:
    """The sizes in bytes of the parts of a finished draft."""

    chunks: int
    entries: int
    manifest: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A snapshot that a kernel loads: descriptors of its recipe and of packs. The caller closes them."""

    file: int
    packs: tuple[int, ...]


class Snapshots(Protocol):
    """When a method returns, its change is on disk. Published snapshots stay complete if it fails or is cancelled."""

    async def begin(self, notebook: NotebookId, base: Snapshot | None) -> Draft:
        """Open the files of a new draft. Raises OperationFailed if the disk is full."""
        ...

    async def publish(self, draft: Draft, written: Written, *, run: RunId | None, name: str) -> Snapshot:
        """Check a draft, store its new chunks, and sign it. It replaces the notebook's snapshot of that name.

        Raises OperationFailed and stores nothing if it is incomplete or the disk is full.
        """
        ...

    def abandon(self, draft: Draft) -> None:
        """Close its files. Also called after `publish`."""

    async def list_for_notebook(self, notebook: NotebookId) -> list[Snapshot]:
        """Return the notebook's snapshots, oldest first."""
        ...

    async def open_recipe(self, snapshot: Snapshot) -> Recipe:
        """Raises OperationFailed if it is damaged, incomplete, not signed by this store or of a newer Quire."""
        ...

    async def load_values(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the variables that JSON can represent, by name, if the snapshot was written with them."""
        ...

    async def write_copy(self, notebook: str, name: str, text: str) -> str:
        """Write a copy for people, and return its path."""
        ...

    async def delete(self, snapshots: list[SnapshotId]) -> None: ...

    async def sweep(self, *, dry: bool = False) -> Swept:
        """Delete chunks that no snapshot uses. With `dry` only return how much that would free."""
        ...

    async def close(self) -> None: ...
