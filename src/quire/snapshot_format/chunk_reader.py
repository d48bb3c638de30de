"""Read the chunks of a snapshot. Each is verified by its name before it is used."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quire import platform_compat
from quire.snapshot_format import chunks
from quire.snapshot_format.chunk_writer import read_and_close
from quire.snapshot_format.chunks import BadSnapshot, Manifest, Place, Whole

_CHUNKS_PER_TASK = 64  # read by one thread at a time


def read_snapshot(recipe: int, packs: Sequence[int]) -> tuple[Manifest, list[Any]]:
    """The manifest and the wholes, the stream first. The descriptors are closed. Raises BadSnapshot."""
    manifest, places = chunks.parse_recipe(read_and_close(recipe))
    try:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return manifest, [_assemble(threads, packs, *pair) for pair in zip(manifest.wholes, places, strict=True)]
    finally:
        for pack in packs:
            os.close(pack)


def split_segments(manifest: Manifest, stream: Any) -> Iterator[tuple[str, bytes]]:
    """Name and content of each part of the stream."""
    view, at = memoryview(stream), 0
    for name, length in manifest.segments:
        yield name, bytes(view[at : at + length])
        at += length


def _assemble(threads: ThreadPoolExecutor, packs: Sequence[int], whole: Whole, places: list[Place]) -> Any:
    data = bytearray(whole.length)
    view = memoryview(data)
    tasks, at = [], 0
    for begin in range(0, len(places), _CHUNKS_PER_TASK):
        batch = places[begin : begin + _CHUNKS_PER_TASK]
        tasks.append(threads.submit(_read, packs, batch, view, at))
        at += sum(place.length for place in batch)
    if at != whole.length:
        raise BadSnapshot("its chunks do not add up")
    for task in tasks:
        task.result()
    return view.toreadonly() if whole.read_only else data


def _read(packs: Sequence[int], places: list[Place], view: memoryview, at: int) -> None:
    for place in places:
        target = view[at : at + place.length]
        if place.compressed:
            target[:] = zlib.decompress(platform_compat.pread(packs[place.pack], place.stored, place.offset))
        elif _read_into(packs[place.pack], target, place.offset) != place.length:
            raise BadSnapshot("a piece of it is cut off")
        if chunks.chunk_name(target) != place.name:
            raise BadSnapshot("a piece of it is damaged")
        at += place.length


def _read_into(file: int, target: memoryview, offset: int) -> int:
    """The number of bytes read."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [target], offset)
    data = platform_compat.pread(file, len(target), offset)
    target[: len(data)] = data
    return len(data)
