"""From segments back to a namespace, by pickle's own loader; what both loaders have in common."""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import os
import pickle
import random
import struct
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from quire.worker.snapshot import nans, shared_modules, tombstones
from quire.worker.snapshot.reducers import (
    REBUILDS,
    Context,
    after_load,
    begin_load,
    end_load,
    rebuilds,
    reduces,
    trial_loads,
)

QUIRE_PREFIX = "quire.worker."
_PACKAGE = "quire.worker.snapshot"
_KNOWN = f"{_PACKAGE}.known"
MOVED: dict[str, str] = {}  # names that were renamed since format 1: old -> new, "module.name" under the house


@dataclass(frozen=True)
class Lost:
    """Something that is not in the stream, or did not come back from it."""

    name: str  # the variable it is in
    what: str  # "a suspended generator", "a socket"
    why: str  # one short clause: why it cannot be kept


def load_strictly(segments: list[tuple[str, bytes]], memory: list[memoryview], namespace: dict[str, Any]) -> list[Lost]:
    """Raises whatever the first thing raises that cannot be made."""
    return _Load(segments, memory, namespace).run()


@contextlib.contextmanager
def no_gc_or_warnings() -> Iterator[None]:
    """No collection, which would find nothing and, in a fork, copy every page; and no warnings of what is outdated."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collects:
            gc.enable()


RESTORED_MEMORY: set[tuple[int, int]] = set()  # id and size of the memory that arrays of an earlier load lie in


def known_objects(namespace: dict[str, Any]) -> dict[str, Any]:
    """What both sides have before the first segment; the order is part of the format."""
    return {
        "namespace": namespace,
        "builtins": builtins.__dict__,
        "modules": sys.modules,
        "path": sys.path,
        "argv": sys.argv,
        "stdin": _process_stream(sys.stdin),
        "stdout": _process_stream(sys.stdout),
        "stderr": _process_stream(sys.stderr),
        "environ": os.environ,
        "random": random._inst,
    }


def _process_stream(stream: Any) -> Any:
    """None where a cell put a buffer of its own there."""
    return None if isinstance(stream, io.StringIO) else stream


def preamble() -> list[bytes]:
    """Puts what is known into the memo of a loader, each under its number."""
    return [b"\x80\x05" + _text(_KNOWN) + _text(name) + b"\x93\x94." for name in known_objects({})]


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def find_in_quire(module: str, name: str, namespace: dict[str, Any]) -> Any:
    if module == _KNOWN:
        return known_objects(namespace)[name]
    full = f"{module}.{name}"
    known_as = MOVED.get(full, full)
    if known_as in REBUILDS:
        return REBUILDS[known_as]
    value: Any = sys.modules.get(module)  # not by an import: the package `quire` is not there while cells run
    if value is None:
        raise ImportError(f"this version of Quire has no {full}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


class SegmentReader:
    """What the loader reads from: one segment after the other."""

    def __init__(self) -> None:
        self.play(b"")

    def play(self, segment: bytes) -> None:
        self._data = bytes(segment)  # a view of memory is not what every opcode takes
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size < 0 else self._at + size
        part = self._data[self._at : end]
        self._at += len(part)
        return part

    def readinto(self, target: Any) -> int:
        part = self.read(len(target))
        target[: len(part)] = part
        return len(part)

    def readline(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        return self.read((end + 1 if end >= 0 else len(self._data)) - self._at)


class _NamespaceUnpickler(pickle.Unpickler):
    def __init__(self, tape: SegmentReader, buffers: Iterable[Any], namespace: dict[str, Any]) -> None:
        super().__init__(tape, buffers=buffers)
        self._namespace = namespace
        self._nans = nans.NanReader()

    def persistent_load(self, place: Any) -> Any:
        return self._nans.number(place)

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(QUIRE_PREFIX):
            return find_in_quire(module, name, self._namespace)
        return super().find_class(module, name)


class _Load:
    def __init__(self, segments: list[tuple[str, bytes]], memory: list[memoryview], namespace: dict[str, Any]) -> None:
        self._segments = segments
        self._namespace = namespace
        self._tape = SegmentReader()
        self._reader = _NamespaceUnpickler(self._tape, iter(memory), namespace)

    def run(self) -> list[Lost]:
        begin_load()
        for part in preamble():
            self._load(part)
        lost: list[Lost] = []
        for name, segment in self._segments:
            tombstones.collect_losses([])
            value = self._load(segment)
            lost += take_losses(name, value)
            bind(self._namespace, name, value)
        end_load()
        return lost

    def _load(self, segment: bytes) -> Any:
        self._tape.play(segment)
        return self._reader.load()


def bind(namespace: dict[str, Any], name: str, value: Any) -> None:
    if name != shared_modules.SEGMENT:
        namespace[name] = value
    elif not trial_loads:
        after_load(partial(shared_modules.restore_shared, value))


def take_losses(name: str, value: Any) -> list[Lost]:
    """What was lost since the last call, said of the variable it is in."""
    stones = tombstones.take_losses()
    for stone in stones:
        tombstones.set_location(stone, name if stone is value else f"A part of {name}")
    return list(dict.fromkeys(Lost(name, *tombstones.fields(stone)[:2]) for stone in stones))


@rebuilds
def gone(what: str, why: str, name: str = "", cell: str = "") -> Any:
    """What was not kept when the stream was written; that was reported then."""
    return tombstones.make_tombstone(what, why, name, cell)


@reduces(tombstones.Tombstone)
def reduce_tombstone(context: Context, stone: Any) -> Any:
    what, why, *_ = tombstones.fields(stone)
    context.report(stone, what, why)  # as long as it is there it is missed
    return (gone, tombstones.fields(stone))
