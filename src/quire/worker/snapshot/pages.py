"""Which parts of large arrays were written since the last copy, from the page tables of the kernel.

After a fork both processes share a page until one of them writes to it. A page that is exclusive to this process was
written since the last copy, or no copy shares it any more; it counts as written. Writes are collected before each fork,
since the fork makes them invisible.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quire.snapshot_format.chunks import MAX_CHUNK_BYTES
from quire.worker.processes import process_tree

_MIN_WATCHED_BYTES = 1 << 20  # smaller arrays are hashed quickly
_MAX_WATCHED_BYTES = 8 << 30  # in total, since looking takes time of the next cell
_PAGE_BYTES = mmap.PAGESIZE
_PRESENT, _SWAPPED, _FILE, _EXCLUSIVE = 0x80, 0x40, 0x20, 0x01  # in the highest byte of an entry of /proc/self/pagemap
# 0: present, shared with a copy, and not a file; 1: otherwise
_IS_WRITTEN = bytes(0 if byte & (_PRESENT | _SWAPPED | _FILE | _EXCLUSIVE) == _PRESENT else 1 for byte in range(256))
_MAX_HISTORY = 64  # copies in a history


@dataclass
class _Watched:
    owner: weakref.ref[Any]
    address: int
    length: int
    since: set[int] = field(default_factory=set)  # chunks written since the last copy was taken
    history: dict[str, set[int]] = field(default_factory=dict)  # by copy: chunks written before it

    def current(self) -> bool:
        owner = self.owner()
        return owner is not None and _address_and_size(owner) == (self.address, self.length)

    def look(self) -> None:
        self.since |= written_chunks(self.address, self.length)


class PageWatch:
    """Watches the large arrays of a namespace. `before_copy` is called before each copy."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._looked = False  # before the next fork
        os.register_at_fork(before=self._before_fork)

    def _before_fork(self) -> None:
        if not self._looked:
            self._look()
        self._looked = False

    def _look(self) -> None:
        for watched in self._watched.values():
            if watched.current():
                watched.look()

    def before_copy(self, name: str, namespace: dict[str, Any]) -> None:
        """Called before the fork that creates this copy."""
        self._look()
        self._looked = True
        hidden = bool(process_tree.children(os.getpid())) if self._watched else False  # a child may share written pages
        found: dict[int, Any] = {}
        room = _MAX_WATCHED_BYTES
        for owner in _owners(namespace):
            if owner.nbytes <= room and id(owner) not in found:
                found[id(owner)] = owner
                room -= owner.nbytes
        self._watched = {
            key: array for key, array in self._watched.items() if array.current() and array.owner() is found.get(key)
        }
        for key, owner in found.items():
            address, length = _address_and_size(owner)
            watched = self._watched.setdefault(key, _Watched(weakref.ref(owner), address, length))
            if hidden or name in watched.history:  # a copy taken again replaces the recorded one
                watched.history.clear()
            watched.history[name], watched.since = watched.since, set()
            while len(watched.history) > _MAX_HISTORY:
                del watched.history[next(iter(watched.history))]

    def key(self, owner: Any, data: memoryview) -> str:
        """A key of the array in this process and its copies, or "" if it is not watched."""
        watched = self._watched.get(id(owner))
        if watched is None or watched.owner() is not owner or watched.length != data.nbytes:
            return ""
        return f"{id(owner):x} {watched.address:x} {watched.length:x}"

    def changed(self, owner: Any, base: str) -> Callable[[int], bool] | None:
        """A function that tells whether a chunk was written since the copy `base`; None if unknown."""
        history = self._watched[id(owner)].history
        if base not in history:
            return None
        names = list(history)
        written = set[int]().union(*(history[name] for name in names[names.index(base) + 1 :]))
        return written.__contains__


def written_chunks(address: int, length: int) -> set[int]:
    """The chunks of this memory with a page written since it was last shared."""
    first = address // _PAGE_BYTES
    count = (address + length - 1) // _PAGE_BYTES - first + 1
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            entries = os.pread(pagemap.fileno(), count * 8, first * 8)
    except OSError:
        entries = b""
    if len(entries) != count * 8:
        return set(range(-(-length // MAX_CHUNK_BYTES)))
    pages = entries[7::8].translate(_IS_WRITTEN)
    chunks: set[int] = set()
    at = pages.find(1)
    while at >= 0:
        begin = max(0, (first + at) * _PAGE_BYTES - address)
        end = min(length, (first + at + 1) * _PAGE_BYTES - address)
        chunks.update(range(begin // MAX_CHUNK_BYTES, (end - 1) // MAX_CHUNK_BYTES + 1))
        following = address + ((end - 1) // MAX_CHUNK_BYTES + 1) * MAX_CHUNK_BYTES  # where the next chunk begins
        at = pages.find(1, max(at + 1, following // _PAGE_BYTES - first))
    return chunks


def _owners(namespace: dict[str, Any]) -> list[Any]:
    """The arrays that own the memory of large arrays and data frames."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return []
    pandas: Any = sys.modules.get("pandas")
    frames = (pandas.DataFrame, pandas.Series) if pandas is not None and hasattr(pandas, "Series") else ()
    found = []
    for value in list(namespace.values()):
        arrays: Any = ()
        if type(value) is numpy.ndarray:
            arrays = (value,)
        elif frames and type(value) in frames:
            with contextlib.suppress(Exception):
                arrays = [block.values for block in value._mgr.blocks]
        for array in arrays:
            while type(getattr(array, "base", None)) is numpy.ndarray:
                array = array.base
            owned = type(array) is numpy.ndarray and type(array.base) in (type(None), bytearray, memoryview)
            if owned and array.nbytes >= _MIN_WATCHED_BYTES:
                found.append(array)
    return found


def _address_and_size(owner: Any) -> tuple[int, int]:
    return owner.__array_interface__["data"][0], owner.nbytes
