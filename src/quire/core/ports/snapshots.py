"""Where snapshots of namespaces are kept."""

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
    """A snapshot being written: files for the kernel to read and write, as descriptors. See `quire.snapshot_format`."""

    notebook: NotebookId
    file: int  # to be written
    base: int  # a recipe of the snapshot it differs little from; -1 where there is none


@dataclass(frozen=True, kw_only=True)
class Written:
    """A draft that is done: how many bytes of chunks, entries and manifest it holds."""

    chunks: int
    entries: int
    manifest: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A snapshot to be loaded: descriptors of its recipe and of the packs that names. Whoever has it closes them."""

    file: int
    packs: tuple[int, ...]


class Snapshots(Protocol):
    """Namespaces written down, each chunk of them once. When a method returns, its change is on disk; whatever
    happens meanwhile, what was published before stays whole."""

    async def begin(self, notebook: NotebookId, base: Snapshot | None) -> Draft:
        """A place to write one. Raises Failed where the disk is full."""
        ...

    async def publish(self, draft: Draft, written: Written, *, run: RunId | None, name: str) -> Snapshot:
        """Check what was written, keep what is new, sign it. A name replaces the notebook's snapshot of that name.
        Raises Failed, and keeps nothing of it, where it is not whole or the disk is full."""
        ...

    def abandon(self, draft: Draft) -> None:
        """Close its files; to be called after publishing, too."""

    async def of(self, notebook: NotebookId) -> list[Snapshot]:
        """A notebook's, oldest first."""
        ...

    async def open(self, snapshot: Snapshot) -> Recipe:
        """Raises Failed where it is damaged, lacks a piece, is not signed by this store, or is a newer Quire's."""
        ...

    async def values(self, snapshot: Snapshot) -> dict[str, Any]:
        """Those that JSON can say, by name, where they were asked for when it was written."""
        ...

    async def write_out(self, notebook: str, name: str, text: str) -> str:
        """Keep a copy for people to read; where it lies."""
        ...

    async def drop(self, snapshots: list[SnapshotId]) -> None: ...

    async def sweep(self, *, dry: bool = False) -> Swept:
        """Let go of chunks that no snapshot names; with `dry` only say how much that would free."""
        ...

    async def close(self) -> None: ...
