"""Preserve the identity of NaNs, which pickle does not, but by which they are found in lists and dicts.

Checking every object is slow, so it is done only if a stream turns out to have NaNs.
"""

from __future__ import annotations

import importlib
import struct
import sys
import types
from collections.abc import Iterable
from typing import Any

from quire.worker.snapshot.modules import importable

_PICKLED_NANS = (b"G\x7f\xf8\0\0\0\0\0\0", b"G\xff\xf8\0\0\0\0\0\0")  # opcode and value of the usual two, as pickled


def has_nans(segments: Iterable[tuple[str, bytes]]) -> bool:
    return any(written in data for _, data in segments for written in _PICKLED_NANS)


class NanWriter:
    """Assigns each NaN its place in a module, or a number."""

    def __init__(self) -> None:
        self._places: dict[int, Any] = {}
        self._held: list[float] = []
        for module_name, module in list(sys.modules.items()):
            if type(module) is types.ModuleType:
                for name, value in list(vars(module).items()):
                    if type(value) is float and value != value and type(name) is str and importable(module):
                        self._places.setdefault(id(value), f"{module_name}:{name}")
                        self._held.append(value)

    def place(self, thing: Any) -> Any:
        """The `persistent_id`; None for other objects."""
        if type(thing) is not float or thing == thing:
            return None
        if id(thing) not in self._places:
            self._places[id(thing)] = (len(self._held), struct.pack(">d", thing))
            self._held.append(thing)
        return self._places[id(thing)]


class NanReader:
    def __init__(self) -> None:
        self._made: dict[Any, float] = {}

    def number(self, place: Any) -> float:
        """The `persistent_load`."""
        if place not in self._made:
            self._made[place] = _module_nan(place) if type(place) is str else struct.unpack(">d", place[1])[0]
        return self._made[place]


def _module_nan(place: str) -> float:
    module, _, name = place.partition(":")
    try:
        value = getattr(importlib.import_module(module), name)
    except Exception:
        value = None
    return value if type(value) is float and value != value else float("nan")
