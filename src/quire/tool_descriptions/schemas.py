"""The shape of the values that a JSON Schema describes, in Python's terms. Never raises, for any input."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_MAX_DEPTH = 8  # of nested shapes; deeper ones are Any
_MAX_STEPS = 1_000
_MAX_REFERENCES = 20  # in a row, or in one object
_MAX_ALTERNATIVES = 8  # alternatives; further ones are ignored
_MAX_VALUES = 12  # of an enum; larger ones become their types
_MAX_VALUES_CHARS = 100
_MAX_FIELDS = 60  # of an object
_PYTHON_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


@dataclass(frozen=True)
class PlainShape:
    name: str  # str, int, float, bool, None, Any


@dataclass(frozen=True)
class LiteralShape:
    values: tuple[Any, ...]


@dataclass(frozen=True)
class ListShape:
    item: Shape


@dataclass(frozen=True)
class DictShape:
    value: Shape


@dataclass(frozen=True)
class UnionShape:
    options: tuple[Shape, ...]


@dataclass(frozen=True)
class ObjectField:
    key: str
    shape: Shape
    required: bool


@dataclass(frozen=True)
class ObjectShape:
    title: str
    fields: tuple[ObjectField, ...]


Shape = PlainShape | LiteralShape | ListShape | DictShape | UnionShape | ObjectShape
ANY = PlainShape("Any")


def shape(schema: Any, root: Any = None) -> Shape:
    """The shape of a schema. References are looked up in `root`."""
    return _ShapeReader(root).shape(schema, _MAX_DEPTH)


class _ShapeReader:
    """Reads one schema in a limited number of steps. A recursive reference is Any."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _MAX_STEPS
        self._open: list[Any] = []

    def shape(self, schema: Any, depth: int) -> Shape:
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        schema = resolve(schema, self._root)
        self._left -= 1
        if depth <= 0 or self._left <= 0 or not isinstance(schema, dict) or reference in self._open[1:]:
            return ANY
        self._open.append(reference or "")
        found = self._shape(schema, depth)
        self._open.pop()
        return union([found, PlainShape("None")]) if schema.get("nullable") is True else found

    def _shape(self, schema: dict[str, Any], depth: int) -> Shape:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            return _literal_shape(values)
        for word in ("anyOf", "oneOf"):
            options = schema.get(word)
            if isinstance(options, list) and options:
                return union([self.shape(option, depth - 1) for option in options[:_MAX_ALTERNATIVES]])
        kinds = schema.get("type")
        if isinstance(kinds, list) and kinds:
            return union([self._of_kind({**schema, "type": kind}, depth) for kind in kinds[:_MAX_ALTERNATIVES]])
        return self._of_kind(schema, depth)

    def _of_kind(self, schema: dict[str, Any], depth: int) -> Shape:
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _PYTHON_NAMES:
            return PlainShape(_PYTHON_NAMES[kind])
        if kind == "array" or (kind is None and "items" in schema):
            return ListShape(self.shape(schema.get("items"), depth - 1))
        says = any(word in schema for word in ("properties", "additionalProperties"))
        if kind == "object" or (kind is None and says):
            return self._object(schema, depth)
        members = schema.get("allOf")
        if isinstance(members, list):
            shapes = [self.shape(member, depth - 1) for member in members[:_MAX_ALTERNATIVES]]
            if shapes and all(isinstance(shape_, ObjectShape | DictShape) for shape_ in shapes):
                return self._object(schema, depth)
            return next((shape_ for shape_ in shapes if shape_ != ANY), ANY)
        return ANY

    def _object(self, schema: dict[str, Any], depth: int) -> Shape:
        found = properties(schema, self._root)
        if not found:
            more = schema.get("additionalProperties")
            return DictShape(self.shape(more, depth - 1) if isinstance(more, dict) and more else ANY)
        needed = required(schema, self._root)
        listed = list(found.items())[:_MAX_FIELDS]
        fields = [ObjectField(key, self.shape(property_, depth - 1), key in needed) for key, property_ in listed]
        return ObjectShape(title(schema), tuple(fields))


def _literal_shape(values: list[Any]) -> Shape:
    if all(value is None or type(value) in (str, int, bool) for value in values):
        if len(values) <= _MAX_VALUES and sum(len(repr(value)) for value in values) <= _MAX_VALUES_CHARS:
            return LiteralShape(tuple(values)) if values != [None] else PlainShape("None")
        return union(PlainShape("None" if value is None else type(value).__name__) for value in values)
    return ANY


def union(shapes: Iterable[Shape]) -> Shape:
    """The union of shapes, without duplicates, None last."""
    flat: list[Shape] = []
    for shape_ in shapes:
        for option in shape_.options if isinstance(shape_, UnionShape) else (shape_,):
            if option not in flat:
                flat.append(option)
    if ANY in flat or not flat:
        return ANY
    if PlainShape("float") in flat and PlainShape("int") in flat:
        flat.remove(PlainShape("int"))
    flat.sort(key=lambda option: option == PlainShape("None"))
    return flat[0] if len(flat) == 1 else UnionShape(tuple(flat))


def resolve(schema: Any, root: Any) -> Any:
    """The schema with its references followed; {} if one cannot be resolved."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        there = resolve_reference(schema["$ref"], root)
        schema = {**there, **beside} if isinstance(there, dict) else there
    return {}


def resolve_reference(reference: Any, root: Any) -> Any:
    """What a `$ref` within `root` refers to; {} if it is external or missing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    at = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        at = at.get(part) if isinstance(at, dict) else None
    return at if at is not None else {}


def subschemas(
    schema: Any, root: Any, words: tuple[str, ...] = ("allOf", "anyOf", "oneOf"), seen: set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The schema of an object and the schemas it is composed of, each reference once."""
    seen = set() if seen is None else seen
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str):
        if reference in seen or len(seen) > _MAX_REFERENCES:
            return
        seen.add(reference)
    schema = resolve(schema, root)
    if not isinstance(schema, dict):
        return
    yield schema
    for word in words:
        options = schema.get(word)
        for option in options[:_MAX_ALTERNATIVES] if isinstance(options, list) else ():
            yield from subschemas(option, root, words, seen)


def properties(schema: Any, root: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in subschemas(schema, root):
        own = part.get("properties")
        for key, property_ in own.items() if isinstance(own, dict) else ():
            if isinstance(key, str):
                found.setdefault(key, property_)
    return found


def required(schema: Any, root: Any) -> set[str]:
    """The required properties; none of alternatives."""
    needed: set[str] = set()
    for part in subschemas(schema, root, ("allOf",)):
        own = part.get("required")
        needed.update(key for key in own if isinstance(key, str)) if isinstance(own, list) else None
    return needed


def title(schema: dict[str, Any]) -> str:
    """The title as a class name, or ""."""
    title_ = schema.get("title")
    return camel_case(title_) if isinstance(title_, str) and len(title_) <= 60 else ""


def camel_case(text: str) -> str:
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text))
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name.isidentifier() else ""
