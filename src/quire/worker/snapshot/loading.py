"""Load segments into a namespace with pickle's loader; common parts of both loaders."""

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
MOVED: dict[str, str] = {}  # rebuild functions renamed since format 1: old -> new full name


@dataclass(frozen=True)
class Lost:
    """An object that was not saved or could not be loaded."""

    name: str  # the variable it is in
    what: str  # "a suspended generator", "a socket"
    why: str  # the reason, a short clause


def load_strictly(segments: list[tuple[str, bytes]], memory: list[memoryview], namespace: dict[str, Any]) -> list[Lost]:
    """Load strictly. Raises the error of the first object that cannot be created."""
    return _Load(segments, memory, namespace).run()


@contextlib.contextmanager
def no_gc_or_warnings() -> Iterator[None]:
    """Disable garbage collection, which would copy pages of a fork, and warnings."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collects:
            gc.enable()


RESTORED_MEMORY: set[tuple[int, int]] = set()  # id and size of memory of arrays from an earlier load


def known_objects(namespace: dict[str, Any]) -> dict[str, Any]:
    """Objects that dump and load both know. The order is part of the format."""
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
    """The stream, or None if a cell replaced it with a buffer."""
    return None if isinstance(stream, io.StringIO) else stream


def preamble() -> list[bytes]:
    """Pickles that put the known objects into the memo, in order."""
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
    value: Any = sys.modules.get(module)  # no import, since `quire` is not importable while cells run
    if value is None:
        raise ImportError(f"this version of Quire has no {full}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


class SegmentReader:
    """The file object of the loader, for one segment at a time."""

    def __init__(self) -> None:
        self.play(b"")

    def play(self, segment: bytes) -> None:
        self._data = bytes(segment)  # some opcodes do not accept a memoryview
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
    """Losses since the last call, with the name of the variable."""
    stones = tombstones.take_losses()
    for stone in stones:
        tombstones.set_location(stone, name if stone is value else f"A part of {name}")
    return list(dict.fromkeys(Lost(name, *tombstones.fields(stone)[:2]) for stone in stones))


@rebuilds
def gone(what: str, why: str, name: str = "", cell: str = "") -> Any:
    """An object that was not saved, as reported by the dump."""
    return tombstones.make_tombstone(what, why, name, cell)


@reduces(tombstones.Tombstone)
def reduce_tombstone(context: Context, stone: Any) -> Any:
    what, why, *_ = tombstones.fields(stone)
    context.report(stone, what, why)  # reported again in each snapshot
    return (gone, tombstones.fields(stone))
