"""What a JSON Schema says, as far as Python can say it: the shape of a value. Never raises, whatever it is given."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_DEPTH = 8  # that shapes are nested; below it everything is Any
_STEPS = 1_000
_REFERENCES = 20  # that follow each other, or that one object is put together of
_EITHER = 8  # alternatives that are told apart
_VALUES = 12  # of an enum that are named
_VALUES_CHARS = 100
_FIELDS = 60  # of an object that are told
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


@dataclass(frozen=True)
class Plain:
    name: str  # str, int, float, bool, None, Any


@dataclass(frozen=True)
class Values:
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Items:
    of: Shape


@dataclass(frozen=True)
class Mapping:
    of: Shape


@dataclass(frozen=True)
class Either:
    of: tuple[Shape, ...]


@dataclass(frozen=True)
class Field:
    key: str
    shape: Shape
    required: bool


@dataclass(frozen=True)
class Fields:
    title: str
    fields: tuple[Field, ...]


Shape = Plain | Values | Items | Mapping | Either | Fields
ANY = Plain("Any")


def shape(schema: Any, root: Any = None) -> Shape:
    """`root`: the schema that references are looked up in."""
    return _Walk(root).shape(schema, _DEPTH)


class _Walk:
    """Through one schema, in so many steps; a reference inside of what it refers to is Any."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _STEPS
        self._open: list[Any] = []

    def shape(self, schema: Any, depth: int) -> Shape:
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        schema = resolved(schema, self._root)
        self._left -= 1
        if depth <= 0 or self._left <= 0 or not isinstance(schema, dict) or reference in self._open[1:]:
            return ANY
        self._open.append(reference or "")
        found = self._shape(schema, depth)
        self._open.pop()
        return either([found, Plain("None")]) if schema.get("nullable") is True else found

    def _shape(self, schema: dict[str, Any], depth: int) -> Shape:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            return _values(values)
        for word in ("anyOf", "oneOf"):
            options = schema.get(word)
            if isinstance(options, list) and options:
                return either([self.shape(each, depth - 1) for each in options[:_EITHER]])
        kinds = schema.get("type")
        if isinstance(kinds, list) and kinds:
            return either([self._of_kind({**schema, "type": kind}, depth) for kind in kinds[:_EITHER]])
        return self._of_kind(schema, depth)

    def _of_kind(self, schema: dict[str, Any], depth: int) -> Shape:
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _PLAIN:
            return Plain(_PLAIN[kind])
        if kind == "array" or (kind is None and "items" in schema):
            return Items(self.shape(schema.get("items"), depth - 1))
        says = any(word in schema for word in ("properties", "additionalProperties"))
        if kind == "object" or (kind is None and says):
            return self._object(schema, depth)
        every = schema.get("allOf")
        if isinstance(every, list):
            shapes = [self.shape(each, depth - 1) for each in every[:_EITHER]]
            if shapes and all(isinstance(each, Fields | Mapping) for each in shapes):
                return self._object(schema, depth)
            return next((each for each in shapes if each != ANY), ANY)
        return ANY

    def _object(self, schema: dict[str, Any], depth: int) -> Shape:
        found = properties(schema, self._root)
        if not found:
            more = schema.get("additionalProperties")
            return Mapping(self.shape(more, depth - 1) if isinstance(more, dict) and more else ANY)
        needed = required(schema, self._root)
        listed = list(found.items())[:_FIELDS]
        fields = [Field(key, self.shape(each, depth - 1), key in needed) for key, each in listed]
        return Fields(title(schema), tuple(fields))


def _values(values: list[Any]) -> Shape:
    if all(value is None or type(value) in (str, int, bool) for value in values):
        if len(values) <= _VALUES and sum(len(repr(value)) for value in values) <= _VALUES_CHARS:
            return Values(tuple(values)) if values != [None] else Plain("None")
        return either(Plain("None" if value is None else type(value).__name__) for value in values)
    return ANY


def either(shapes: Iterable[Shape]) -> Shape:
    """One of these: each once, None last."""
    flat: list[Shape] = []
    for each in shapes:
        for one in each.of if isinstance(each, Either) else (each,):
            if one not in flat:
                flat.append(one)
    if ANY in flat or not flat:
        return ANY
    if Plain("float") in flat and Plain("int") in flat:
        flat.remove(Plain("int"))
    flat.sort(key=lambda one: one == Plain("None"))
    return flat[0] if len(flat) == 1 else Either(tuple(flat))


def resolved(schema: Any, root: Any) -> Any:
    """The schema, behind its references; {} where one leads nowhere."""
    for _ in range(_REFERENCES):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        there = referred_to(schema["$ref"], root)
        schema = {**there, **beside} if isinstance(there, dict) else there
    return {}


def referred_to(reference: Any, root: Any) -> Any:
    """What a `$ref` within `root` refers to; {} if it is elsewhere or there is no such place."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    at = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        at = at.get(part) if isinstance(at, dict) else None
    return at if at is not None else {}


def parts(
    schema: Any, root: Any, words: tuple[str, ...] = ("allOf", "anyOf", "oneOf"), seen: set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The schema of an object and those it is put together of, each reference once."""
    seen = set() if seen is None else seen
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str):
        if reference in seen or len(seen) > _REFERENCES:
            return
        seen.add(reference)
    schema = resolved(schema, root)
    if not isinstance(schema, dict):
        return
    yield schema
    for word in words:
        options = schema.get(word)
        for each in options[:_EITHER] if isinstance(options, list) else ():
            yield from parts(each, root, words, seen)


def properties(schema: Any, root: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts(schema, root):
        own = part.get("properties")
        for key, each in own.items() if isinstance(own, dict) else ():
            if isinstance(key, str):
                found.setdefault(key, each)
    return found


def required(schema: Any, root: Any) -> set[str]:
    """What must be there: of alternatives none must."""
    needed: set[str] = set()
    for part in parts(schema, root, ("allOf",)):
        own = part.get("required")
        needed.update(key for key in own if isinstance(key, str)) if isinstance(own, list) else None
    return needed


def title(schema: dict[str, Any]) -> str:
    """As the name of a class; "" where it has none."""
    said = schema.get("title")
    return camel(said) if isinstance(said, str) and len(said) <= 60 else ""


def camel(text: str) -> str:
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text))
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name.isidentifier() else ""
