"""Convert shapes to Python types: a TypedDict for each object in a schema."""

from __future__ import annotations

import functools
import operator
from typing import Any, Literal, NotRequired, TypedDict

from quire.tool_descriptions import schemas
from quire.tool_descriptions.schemas import Shape

_PLAIN: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "None": None, "Any": Any}


def python_type(shape: Shape, name: str = "", named: bool = True) -> Any:
    """`name` is for TypedDicts without title; without `named` objects are plain dicts."""
    match shape:
        case schemas.PlainShape(plain):
            return _PLAIN[plain]
        case schemas.LiteralShape(values):
            return Literal[values]
        case schemas.ListShape(item):
            return list[python_type(item, f"{name}Item" if name else "", named)]  # type: ignore[misc]
        case schemas.DictShape(value):
            return dict[str, python_type(value, f"{name}Value" if name else "", named)]  # type: ignore[misc]
        case schemas.UnionShape(options):
            return _union([python_type(option, name, named) for option in options])
        case schemas.ObjectShape(title, fields):
            return _typed_dict(title or name, fields) if named and (title or name) else dict[str, Any]


def _union(kinds: list[Any]) -> Any:
    try:
        return functools.reduce(operator.or_, kinds)
    except TypeError:  # None | None, or what has no `|`
        return Any


def _typed_dict(name: str, fields: Any) -> Any:
    content = {}
    for field in fields:
        kind = python_type(field.shape, f"{name}{schemas.camel_case(field.key)}")
        content[field.key] = kind if field.required else NotRequired[kind]
    make: Any = TypedDict
    made = make(name, content)
    made.__module__ = "builtins"  # not a module of the notebook
    return made
