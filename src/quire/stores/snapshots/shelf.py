"""Where snapshots are kept: an index, packs, a key, and turns between servers that share them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from quire.stores.snapshots.index import Index
from quire.stores.snapshots.packs import Packs, Row, turn
from quire.stores.snapshots.seal import key_in


@dataclass(frozen=True, kw_only=True)
class Files:
    """The packs at one moment: what their files are called, and how many bytes are really there."""

    names: dict[int, str]
    notebooks: dict[int, str]  # whose they are
    sizes: dict[int, int]
    damaged: bool  # whether any is gone, or lacks something


@dataclass(frozen=True, kw_only=True)
class Found:
    rows: dict[bytes, Row]
    files: Files


class Shelf:
    """While anybody has a turn with others, no chunk is dropped and no pack is moved."""

    def __init__(self, folder: Path, full: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.full = full  # bytes of a pack after which the next is begun
        self.folder = folder
        self.key = key_in(folder)
        self.packs = Packs(folder / "packs")
        self.index = Index(folder)

    def with_others(self) -> AbstractAsyncContextManager[None]:
        return turn(self.folder / "turn", alone=False)

    def alone(self) -> AbstractAsyncContextManager[None]:
        return turn(self.folder / "turn", alone=True)

    def sweeping(self) -> AbstractAsyncContextManager[None]:
        """One sweep at a time; others read and write meanwhile."""
        return turn(self.folder / "sweeping", alone=True)

    async def find(self, names: Iterable[bytes]) -> Found:
        """Where chunks lie, of those that are there, and the packs they lie in."""
        rows = await self.index.find(names)
        files = await self.files()  # after the rows: what they say was there before them
        if files.damaged:
            rows = {name: row for name, row in rows.items() if row.offset + row.stored <= files.sizes.get(row.pack, 0)}
        return Found(rows=rows, files=files)

    async def files(self) -> Files:
        packs = await self.index.packs()
        sizes = await anyio.to_thread.run_sync(self.packs.sizes, packs)
        return Files(
            names={pack.id: pack.file for pack in packs},
            notebooks={pack.id: pack.notebook for pack in packs},
            sizes=sizes,
            damaged=any(sizes.get(pack.id, -1) < pack.bytes for pack in packs),
        )
