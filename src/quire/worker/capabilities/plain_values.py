"""Convert arguments to JSON. The server checks them against the tool's JSON Schema."""

from __future__ import annotations

import datetime
import enum
import math
import os
from typing import Any

_MAX_DEPTH = 45
_MAX_SHOWN_CHARS = 60  # of a value in a message


class NotJson(Exception):
    """The value at `path` cannot be JSON; with `typed` because of its type."""

    def __init__(self, path: tuple[Any, ...], what: str, *, typed: bool = False) -> None:
        super().__init__(path, what)
        self.path, self.what, self.typed = path, what, typed


def to_json(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """The value as JSON. Raises NotJson."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotJson(path, f"is {value}, which JSON cannot say")
        return value
    if len(path) > _MAX_DEPTH:
        raise NotJson(path[:1], "is nested too deeply, or holds itself")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotJson(path, f"has a key that is no text: {_shown(key)}", typed=True)
        return {str(key): to_json(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, (*path, at)) for at, item in enumerate(value)]
    return _converted(value, path)


def _converted(value: Any, path: tuple[Any, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return to_json(value.value, path)
    for kind in (str, int, float):
        if isinstance(value, kind):  # a subclass
            return to_json(kind(value), path)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    for method in ("item", "tolist"):  # scalars and arrays of numpy, pandas, torch
        make = getattr(type(value), method, None)
        if callable(make):
            try:
                made = make(value)
            except Exception:  # noqa: S112 - has more than one element
                continue
            if type(made) in (bool, int, float, str, list) and made is not value:
                return to_json(made, path)
    instead = ": give it as base64 text" if isinstance(value, (bytes, bytearray)) else ""
    instead = ": give a list" if isinstance(value, (set, frozenset)) else instead
    raise NotJson(path, f"is of type {type(value).__name__}, which JSON cannot say{instead}", typed=True)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."
