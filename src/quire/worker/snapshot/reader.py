"""Load a snapshot into a new kernel, after verifying every chunk."""

from __future__ import annotations

import linecache
import pickle
import time
from dataclasses import dataclass
from typing import Any

from quire.snapshot_format.chunk_reader import read_snapshot, split_segments
from quire.worker.capabilities import native
from quire.worker.execution import history
from quire.worker.snapshot import process_state, shared_modules, stream, tombstones
from quire.worker.snapshot.stream import Lost


@dataclass(frozen=True)
class LoadedSnapshot:
    variables: int
    lost: list[Lost]
    notes: list[str]
    makers: dict[str, str]
    cells: dict[str, str]
    seconds: float


def load(descriptors: list[int], namespace: dict[str, Any]) -> LoadedSnapshot:
    """Descriptors: recipe and packs. Raises BadSnapshot before anything is changed."""
    begun = time.perf_counter()
    manifest, wholes = read_snapshot(descriptors[0], descriptors[1:])
    segments = list(split_segments(manifest, wholes[0]))
    private = pickle.loads(segments[0][1])  # noqa: S301 - written by Quire and signed by the store
    notes = process_state.restore_before_load(private["surroundings"])
    for name, text in private["sources"].items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    lost = stream.load(segments[1:], wholes[1:], namespace, sources=private["sources"].get)
    _reorder(namespace, private["order"])
    makers, cells = private["makers"], private["cells"]
    for name, value in namespace.items():
        if tombstones.is_tombstone(value):
            tombstones.set_location(value, name, cells.get(makers.get(name, ""), ""))
    notes += process_state.restore_after_load(private["surroundings"])
    variables = sum(
        name not in (*history.SAVED_NAMES, native.NAMESPACE_KEY, shared_modules.SEGMENT) for name, _ in segments[1:]
    )
    return LoadedSnapshot(variables, lost, notes, makers, cells, time.perf_counter() - begun)


def _reorder(namespace: dict[str, Any], order: list[str]) -> None:
    """Restore the order of names."""
    for name in order:
        if name in namespace:
            namespace[name] = namespace.pop(name)
