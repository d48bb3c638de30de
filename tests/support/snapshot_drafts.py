"""Drafts as a kernel writes them, and snapshots read back as a worker does, for tests of who keeps them."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from quire.core.model import NotebookId, RunId, Snapshot
from quire.core.ports.snapshots import Recipe, Snapshots, Written
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import Entry, Manifest, Whole

BOOK = NotebookId("book")
ABOUT: dict[str, Any] = {"variables": {"x": "int"}, "functions": [], "lost": [], "seconds": 0.5}


@dataclass
class Writing:
    """A draft in memory, to be spoiled before it is written."""

    data: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    wholes: list[Whole] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=lambda: dict(ABOUT))
    known: set[bytes] = field(default_factory=set)
    manifest: bytes | None = None  # where it is to say something else

    def chunk(self, content: bytes, *, compress: bool = False) -> bytes:
        name = chunks.chunk_name(content)
        if name not in self.known:
            self.known.add(name)
            smaller = zlib.compress(content)
            compressed = compress and len(smaller) < len(content)
            self.raw(name, len(content), smaller if compressed else content, compressed)
        return name

    def raw(self, name: bytes, length: int, stored: bytes, compressed: bool) -> None:
        self.data.append(stored)
        self.entries.append(Entry(name, length, len(stored), compressed))

    def whole(self, content: bytes, *, size: int = chunks.MAX_CHUNK_BYTES, compress: bool = False) -> None:
        view = memoryview(content)
        names = [self.chunk(bytes(view[at : at + size]), compress=compress) for at in range(0, len(content), size)]
        fan = chunks.NODE_NAMES
        nodes = tuple(self.chunk(b"".join(names[at : at + fan])) for at in range(0, len(names), fan))
        self.wholes.append(Whole(len(content), nodes))

    def write(self, file: int) -> Written:
        listed = chunks.dump_entries(self.entries)
        stream, *buffers = self.wholes
        said = self.manifest
        if said is None:
            said = Manifest("3.11.2", (("x", stream.length),), stream, tuple(buffers), self.about).dump()
        total = 0
        for part in (*self.data, listed, said):
            view = memoryview(part)
            while view:
                done = os.pwrite(file, view, total)
                total += done
                view = view[done:]
        return Written(chunks=sum(map(len, self.data)), entries=len(listed), manifest=len(said))


def of(wholes: Iterable[bytes], known: Iterable[bytes] = (), **how: Any) -> Writing:
    writing = Writing(known=set(known))
    for whole in wholes:
        writing.whole(whole, **how)
    return writing


async def keep(
    store: Snapshots,
    wholes: Sequence[bytes],
    *,
    notebook: NotebookId = BOOK,
    base: Snapshot | None = None,
    run: str | None = None,
    name: str = "",
    **how: Any,
) -> Snapshot:
    """A snapshot of these bytes, in which nothing is written that its base has."""
    draft = await store.begin(notebook, base)
    try:
        writing = of(wholes, known_to(draft.base), **how)
        return await store.publish(draft, writing.write(draft.file), run=run and RunId(run), name=name)
    finally:
        store.abandon(draft)


async def offer(store: Snapshots, writing: Writing, *, written: Written | None = None) -> Snapshot:
    """Publish a draft as it is."""
    draft = await store.begin(BOOK, None)
    try:
        truly = writing.write(draft.file)
        return await store.publish(draft, written or truly, run=None, name="")
    finally:
        store.abandon(draft)


def known_to(base: int) -> set[bytes]:
    """The names a base's recipe lists, nodes too."""
    if base < 0:
        return set()
    manifest, wholes = chunks.parse_recipe(os.pread(base, os.fstat(base).st_size, 0))
    nodes = {node for whole in manifest.wholes for node in whole.nodes}
    return nodes | {place.name for places in wholes for place in places}


async def load(store: Snapshots, snapshot: Snapshot) -> list[bytes]:
    """Its wholes, read and checked as a worker does."""
    recipe = await store.open_recipe(snapshot)
    try:
        return read_back(recipe)
    finally:
        for file in (recipe.file, *recipe.packs):
            os.close(file)


def read_back(recipe: Recipe) -> list[bytes]:
    manifest, wholes = chunks.parse_recipe(os.pread(recipe.file, os.fstat(recipe.file).st_size, 0))
    found = []
    for whole, places in zip(manifest.wholes, wholes, strict=True):
        parts = []
        for place in places:
            data = os.pread(recipe.packs[place.pack], place.stored, place.offset)
            content = zlib.decompress(data) if place.compressed else data
            if chunks.chunk_name(content) != place.name or len(content) != place.length:
                raise chunks.BadSnapshot("a chunk is not what its name says")
            parts.append(content)
        found.append(b"".join(parts))
        if len(found[-1]) != whole.length:
            raise chunks.BadSnapshot("a whole has another length")
    return found


def noise(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)
