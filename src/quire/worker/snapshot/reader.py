"""Loading a snapshot into a fresh kernel: every chunk is checked by its name before anything is made of it."""

from __future__ import annotations

import linecache
import os
import pickle
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from quire.wire import chunks
from quire.wire.chunks import BadSnapshot, Place, Whole
from quire.worker import history
from quire.worker.capabilities import native
from quire.worker.snapshot import stream, surroundings, tombstones
from quire.worker.snapshot.cutting import read_whole
from quire.worker.snapshot.stream import Lost

_TASK = 64  # chunks that a thread reads before it takes the next


@dataclass(frozen=True)
class Loaded:
    variables: int
    lost: list[Lost]
    notes: list[str]
    makers: dict[str, str]
    cells: dict[str, str]
    seconds: float


def load(descriptors: list[int], namespace: dict[str, Any]) -> Loaded:
    """Descriptors: the recipe and its packs. Raises BadSnapshot, with nothing touched, where a piece is damaged."""
    begun = time.perf_counter()
    manifest, places = chunks.parse_recipe(read_whole(descriptors[0]))
    packs = descriptors[1:]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        wholes = [_assemble(threads, packs, *each) for each in zip(manifest.wholes, places, strict=True)]
    for pack in packs:
        os.close(pack)
    segments = list(_segments(manifest.segments, wholes[0]))
    private = pickle.loads(segments[0][1])  # noqa: S301 - signed by the store, and our own
    notes = surroundings.apply_before(private["surroundings"])
    for name, text in private["sources"].items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    lost = stream.load(segments[1:], wholes[1:], namespace, sources=private["sources"].get)
    _reorder(namespace, private["order"])
    makers, cells = private["makers"], private["cells"]
    for name, value in namespace.items():
        if tombstones.is_one(value):
            tombstones.named(value, name, cells.get(makers.get(name, ""), ""))
    notes += surroundings.apply_after(private["surroundings"])
    variables = sum(name not in (*history.KEPT, native.KEPT) for name, _ in segments[1:])
    return Loaded(variables, lost, notes, makers, cells, time.perf_counter() - begun)


def _assemble(threads: ThreadPoolExecutor, packs: list[int], whole: Whole, places: list[Place]) -> Any:
    data = bytearray(whole.length)
    view = memoryview(data)
    tasks, at = [], 0
    for begin in range(0, len(places), _TASK):
        some = places[begin : begin + _TASK]
        tasks.append(threads.submit(_read, packs, some, view, at))
        at += sum(place.length for place in some)
    if at != whole.length:
        raise BadSnapshot("its chunks do not add up")
    for task in tasks:
        task.result()
    return view.toreadonly() if whole.read_only else data


def _read(packs: list[int], places: list[Place], view: memoryview, at: int) -> None:
    for place in places:
        target = view[at : at + place.length]
        if place.compressed:
            target[:] = zlib.decompress(os.pread(packs[place.pack], place.stored, place.offset))
        elif os.preadv(packs[place.pack], [target], place.offset) != place.length:
            raise BadSnapshot("a piece of it is cut off")
        if chunks.digest(target) != place.name:
            raise BadSnapshot("a piece of it is damaged")
        at += place.length


def _segments(listed: tuple[tuple[str, int], ...], data: Any) -> Iterator[tuple[str, bytes]]:
    view, at = memoryview(data), 0
    for name, length in listed:
        yield name, bytes(view[at : at + length])
        at += length


def _reorder(namespace: dict[str, Any], order: list[str]) -> None:
    """Names in the order they had."""
    for name in order:
        if name in namespace:
            namespace[name] = namespace.pop(name)
