"""Describe functions of the notebook as tools: signature, docstring, JSON Schema of parameters."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from quire.worker.execution.namespace import as_json

_JSON_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_MAX_DESCRIPTION_CHARS = 2_000  # characters
_MAX_SIGNATURE_CHARS = 500
_MAX_DEPTH = 6


def describe_function(name: str, function: Any) -> dict[str, Any]:
    """{name, signature, description, input}"""
    return {
        "name": name,
        "signature": signature_text(name, function),
        "description": (inspect.getdoc(function) or "")[:_MAX_DESCRIPTION_CHARS],
        "input": parameters_schema(function),
    }


def signature_text(name: str, function: Any) -> str:
    try:
        try:
            signature = inspect.signature(function, eval_str=True)
        except Exception:  # an unknown name
            signature = inspect.signature(function)
        return f"{name}{signature}"[:_MAX_SIGNATURE_CHARS]
    except Exception:  # no signature, or a default whose repr raises
        return f"{name}(...)"


def bind_arguments(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name; errors are reported by the call itself."""
    try:
        return dict(inspect.signature(function).bind(*arguments, **named).arguments)
    except (TypeError, ValueError):
        return {**{str(at): argument for at, argument in enumerate(arguments)}, **named}


def parameters_schema(function: Any) -> dict[str, Any]:
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
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            found["additionalProperties"] = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            property_ = type_schema(hints.get(parameter.name, Any))
            if parameter.default is parameter.empty:
                needed.append(parameter.name)
            elif default := as_json(parameter.default):
                property_ = {**property_, "default": default[0]}
            found["properties"][parameter.name] = property_
    return {**found, "required": needed} if needed else found


def type_schema(kind: Any, depth: int = _MAX_DEPTH) -> dict[str, Any]:
    """The JSON Schema of an annotation, or {}."""
    if depth <= 0:
        return {}
    if isinstance(kind, type) and kind in _JSON_TYPES:
        return {"type": _JSON_TYPES[kind]}
    if kind is None:
        return {"type": "null"}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [type_schema(option, depth - 1) for option in inner]}
    if origin is Literal:
        return {"enum": list(inner)} if all(as_json(value) for value in inner) else {}
    if kind in (list, tuple, set) or origin in (list, tuple, set, frozenset):
        items = type_schema(inner[0], depth - 1) if inner else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    if kind is dict or origin is dict:
        values = type_schema(inner[1], depth - 1) if len(inner) == 2 else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    return _typed_dict_schema(kind, depth) if typing.is_typeddict(kind) else {}


def _typed_dict_schema(kind: Any, depth: int) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        return {"type": "object"}
    fields = {name: type_schema(hint, depth - 1) for name, hint in hints.items()}
    return {"type": "object", "properties": fields, "required": sorted(kind.__required_keys__)}
