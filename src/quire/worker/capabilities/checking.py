"""Arguments before they go out: made plain data, and held against the tool's JSON Schema."""

from __future__ import annotations

import datetime
import enum
import math
import operator
import os
import re
from collections.abc import Callable
from typing import Any

from quire.wire import schemas

_DEPTH = 45
_STEPS = 200_000  # then the rest is let through: the server checks too
_SHOWN = 60  # characters of a value in a message
_PATTERN = 1_000  # characters of a pattern that is tried
_MATCHED = 10_000  # of what it is tried on
_KINDS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

_WITH_ARTICLE = {kind: f"{'an' if kind[0] in 'aio' else 'a'} {kind}" for kind in _KINDS} | {"null": "null"}


class Wrong(Exception):
    """A value does not fit; `path` leads to it, `typed` says that its type is what is wrong."""

    def __init__(self, path: tuple[Any, ...], what: str, *, typed: bool = False) -> None:
        super().__init__(path, what)
        self.path, self.what, self.typed = path, what, typed


def plain(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """The value as JSON has it. Raises Wrong where it has no such thing."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if not math.isfinite(value):
            raise Wrong(path, f"is {value}, which JSON cannot say")
        return value
    if len(path) > _DEPTH:
        raise Wrong(path[:1], "is nested too deeply, or holds itself")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Wrong(path, f"has a key that is no text: {_shown(key)}", typed=True)
        return {str(key): plain(each, (*path, str(key))) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, (*path, at)) for at, each in enumerate(value)]
    return _converted(value, path)


def _converted(value: Any, path: tuple[Any, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return plain(value.value, path)
    for kind in (str, int, float):
        if isinstance(value, kind):  # of a class of its own
            return plain(kind(value), path)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    for way in ("item", "tolist"):  # numbers and arrays of numpy, pandas, torch
        make = getattr(type(value), way, None)
        if callable(make):
            try:
                made = make(value)
            except Exception:  # noqa: S112 - of more than one element
                continue
            if type(made) in (bool, int, float, str, list) and made is not value:
                return plain(made, path)
    instead = ": give it as base64 text" if isinstance(value, (bytes, bytearray)) else ""
    instead = ": give a list" if isinstance(value, (set, frozenset)) else instead
    raise Wrong(path, f"is of type {type(value).__name__}, which JSON cannot say{instead}", typed=True)


class _Root:
    """The schema that references are looked up in, and how many steps may still be taken."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.left = _STEPS


def check(value: Any, schema: Any) -> None:
    """Raises Wrong where the value does not fit the schema; words that are not known here are let through."""
    _check(value, schema, _Root(schema), (), _DEPTH)


def _check(value: Any, schema: Any, root: _Root, path: tuple[Any, ...], depth: int) -> None:
    schema = schemas.resolved(schema, root.schema)
    root.left -= 1
    if schema is False:
        raise Wrong(path, "is not allowed")
    if depth <= 0 or root.left <= 0 or not isinstance(schema, dict):
        return
    if value is None and schema.get("nullable") is True:
        return
    _kind(value, schema, path)
    _choice(value, schema, path)
    if isinstance(value, str):
        _string(value, schema, path)
    elif type(value) in (int, float):
        _number(value, schema, path)
    elif isinstance(value, list):
        _array(value, schema, root, path, depth)
    elif isinstance(value, dict):
        _object(value, schema, root, path, depth)
    _combined(value, schema, root, path, depth)


def _kind(value: Any, schema: dict[str, Any], path: tuple[Any, ...]) -> None:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) and kind in _KINDS for kind in kinds):
        return
    if not any(_KINDS[kind](value) for kind in kinds):
        said = " or ".join(_WITH_ARTICLE[kind] for kind in kinds)
        raise Wrong(path, f"must be {said}, not {_shown(value)}", typed=True)


def _choice(value: Any, schema: dict[str, Any], path: tuple[Any, ...]) -> None:
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and not any(_same(value, each) for each in choices):
        few = ", ".join(map(repr, choices[:20])) + (", ..." if len(choices) > 20 else "")
        raise Wrong(path, f"must be one of {few}, not {_shown(value)}")
    if "const" in schema and not _same(value, schema["const"]):
        raise Wrong(path, f"must be {schema['const']!r}, not {_shown(value)}")


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _string(value: str, schema: dict[str, Any], path: tuple[Any, ...]) -> None:
    _size(len(value), schema, ("minLength", "maxLength"), "character", path)
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and len(pattern) <= _PATTERN and len(value) <= _MATCHED:
        try:
            fits = re.search(pattern, value) is not None
        except (re.error, RecursionError, OverflowError):
            return  # it is a pattern of another language's
        if not fits:
            raise Wrong(path, f"must match the pattern {pattern}, and {_shown(value)} does not")


def _number(value: float, schema: dict[str, Any], path: tuple[Any, ...]) -> None:
    for word, fits, said in _LIMITS:
        limit = schema.get(word)
        if type(limit) in (int, float) and not fits(value, limit):
            raise Wrong(path, f"must be {said} {limit}, not {_shown(value)}")
    step = schema.get("multipleOf")
    if type(step) is int and step > 0 and value % step:
        raise Wrong(path, f"must be a multiple of {step}, not {_shown(value)}")


_LIMITS: tuple[tuple[str, Callable[[Any, Any], Any], str], ...] = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)


def _array(value: list[Any], schema: dict[str, Any], root: _Root, path: tuple[Any, ...], depth: int) -> None:
    _size(len(value), schema, ("minItems", "maxItems"), "item", path)
    first = schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    for at, each in enumerate(value):
        inner = first[at] if at < len(first) else schema.get("items")
        if inner is not None:
            _check(each, inner, root, (*path, at), depth - 1)


def _object(value: dict[str, Any], schema: dict[str, Any], root: _Root, path: tuple[Any, ...], depth: int) -> None:
    needed, known = schema.get("required"), schema.get("properties")
    known = known if isinstance(known, dict) else {}
    missing = [key for key in needed if isinstance(key, str) and key not in value] if isinstance(needed, list) else []
    if missing:
        raise Wrong(path, f"lacks {', '.join(map(repr, missing))}")
    _size(len(value), schema, ("minProperties", "maxProperties"), "key", path)
    more = schema.get("additionalProperties")
    for key, each in value.items():
        if key in known:
            _check(each, known[key], root, (*path, key), depth - 1)
        elif more is False and "patternProperties" not in schema:
            raise Wrong((*path, key), f"is not known; there are {', '.join(map(repr, known)) or 'none'}")
        elif isinstance(more, dict):
            _check(each, more, root, (*path, key), depth - 1)


def _size(size: int, schema: dict[str, Any], words: tuple[str, str], what: str, path: tuple[Any, ...]) -> None:
    least, most = schema.get(words[0]), schema.get(words[1])
    if type(least) is int and size < least:
        raise Wrong(path, f"must have at least {least} {what}{'s' * (least != 1)}, not {size}")
    if type(most) is int and size > most:
        raise Wrong(path, f"must have at most {most} {what}{'s' * (most != 1)}, not {size:,}")


def _combined(value: Any, schema: dict[str, Any], root: _Root, path: tuple[Any, ...], depth: int) -> None:
    every = schema.get("allOf")
    for each in every if isinstance(every, list) else ():
        _check(value, each, root, path, depth - 1)
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options:
            _one_of(value, options, root, path, depth)


def _one_of(value: Any, options: list[Any], root: _Root, path: tuple[Any, ...], depth: int) -> None:
    found: list[Wrong] = []
    for each in options:
        try:
            _check(value, each, root, path, depth - 1)
            return
        except Wrong as wrong:
            found.append(wrong)
    deepest = max(found, key=lambda wrong: (len(wrong.path), not wrong.typed))
    if len(deepest.path) > len(path) or not deepest.typed:
        raise deepest
    musts = dict.fromkeys(wrong.what.partition(", not ")[0].removeprefix("must be ") for wrong in found)
    raise Wrong(path, f"must be {' or '.join(musts)}, not {_shown(value)}", typed=True)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
