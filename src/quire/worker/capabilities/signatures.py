"""Functions of the notebook as tools: signature, first words, and a JSON Schema of what they take."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from quire.worker.execution.namespace import as_json

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_DESCRIPTION = 2_000  # characters
_SIGNATURE = 500
_DEPTH = 6


def told(name: str, function: Any) -> dict[str, Any]:
    """{name, signature, description, input}"""
    return {
        "name": name,
        "signature": text(name, function),
        "description": (inspect.getdoc(function) or "")[:_DESCRIPTION],
        "input": schema(function),
    }


def text(name: str, function: Any) -> str:
    try:
        try:
            said = inspect.signature(function, eval_str=True)
        except Exception:  # a name that is not there
            said = inspect.signature(function)
        return f"{name}{said}"[:_SIGNATURE]
    except Exception:  # of what has none, or a default whose repr raises
        return f"{name}(...)"


def bound(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Arguments by their names; what does not fit is told when the function is called."""
    try:
        return dict(inspect.signature(function).bind(*arguments, **named).arguments)
    except (TypeError, ValueError):
        return {**{str(at): each for at, each in enumerate(arguments)}, **named}


def schema(function: Any) -> dict[str, Any]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {"type": "object", "properties": {}, "additionalProperties": True}
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # a name that is not there
        hints = {}
    found: dict[str, Any] = {"type": "object", "properties": {}}
    needed = []
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            found["additionalProperties"] = True
        elif each.kind is not each.VAR_POSITIONAL:
            said = of_type(hints.get(each.name, Any))
            if each.default is each.empty:
                needed.append(each.name)
            elif default := as_json(each.default):
                said = {**said, "default": default[0]}
            found["properties"][each.name] = said
    return {**found, "required": needed} if needed else found


def of_type(kind: Any, depth: int = _DEPTH) -> dict[str, Any]:
    """The JSON Schema of an annotation; {} where it has none."""
    if depth <= 0:
        return {}
    if isinstance(kind, type) and kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is None:
        return {"type": "null"}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [of_type(each, depth - 1) for each in inner]}
    if origin is Literal:
        return {"enum": list(inner)} if all(as_json(each) for each in inner) else {}
    if kind in (list, tuple, set) or origin in (list, tuple, set, frozenset):
        items = of_type(inner[0], depth - 1) if inner else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    if kind is dict or origin is dict:
        values = of_type(inner[1], depth - 1) if len(inner) == 2 else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    return _of_typed_dict(kind, depth) if typing.is_typeddict(kind) else {}


def _of_typed_dict(kind: Any, depth: int) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        return {"type": "object"}
    fields = {name: of_type(each, depth - 1) for name, each in hints.items()}
    return {"type": "object", "properties": fields, "required": sorted(kind.__required_keys__)}
