"""Describe variables and functions of a namespace without running user code."""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable
from typing import Any

from quire.worker.capabilities.results import Contents, Record, Text
from quire.worker.execution import history

_SIZED_TYPES = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range, Record, Text, Contents)
_PLAIN_TYPES: dict[type, type] = {Record: dict, Text: str, Contents: list}  # treated as these types
_SHAPED = ("numpy", "pandas", "polars", "torch", "xarray", "scipy", "jax", "pyarrow")
_MAX_JSON_CHARS = 20_000
_MAX_NAMES = 2_000  # listed
_MAX_NAME_CHARS = 200  # of a name or a type
_MAX_SIGNATURE_CHARS = 500
_MAX_DEPTH = 20


def describe(namespace: dict[str, Any]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Variables as {name: type with its size}, functions as [{name, signature, docstring}]."""
    variables: dict[str, str] = {}
    functions: list[dict[str, str]] = []
    left_out = 0
    for name, value in list(namespace.items()):
        if type(name) is not str or name.startswith("_") or issubclass(type(value), types.ModuleType):
            continue
        if history.is_kernel_name(name):
            continue
        if len(variables) + len(functions) >= _MAX_NAMES:
            left_out += 1
        elif type(value) is types.FunctionType:
            functions.append({"name": name[:_MAX_NAME_CHARS], "signature": signature(value), "docstring": doc(value)})
        else:
            variables[name[:_MAX_NAME_CHARS]] = type_of(value)[:_MAX_NAME_CHARS]
    if left_out:
        variables["..."] = f"{left_out:,} more"
    return variables, functions


def signature(function: types.FunctionType) -> str:
    try:
        declared = inspect.signature(function, follow_wrapped=False)
        parameters = [
            parameter.replace(
                default=parameter.default
                if parameter.default is parameter.empty
                else _Literal(_short_repr(parameter.default)),
                annotation=parameter.annotation
                if parameter.annotation is parameter.empty
                else _Literal(_short_repr(parameter.annotation)),
            )
            for parameter in declared.parameters.values()
        ]
        returns = declared.return_annotation
        if returns is not declared.empty:
            returns = _Literal(_short_repr(returns))
        return str(declared.replace(parameters=parameters, return_annotation=returns))[:_MAX_SIGNATURE_CHARS]
    except BaseException:
        return "(...)"


class _Literal:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _short_repr(value: Any) -> str:
    """A short text for a default or an annotation; "..." if only its own code could tell."""
    kind = type(value)
    if kind is type:
        return _name(value)
    if kind is str:
        return repr(value) if len(value) <= 40 else f"{value[:40]!r}..."
    if value is None or kind in (bool, float) or (kind is int and value.bit_length() < 200):
        return repr(value)
    return repr(value) if kind in (list, tuple, dict) and not value else "..."


def doc(function: types.FunctionType) -> str:
    text = function.__doc__
    return text.strip().split("\n", 1)[0][:200] if type(text) is str else ""


def type_of(value: Any) -> str:
    """`DataFrame (3, 2)`, `list of 5`, `int`. Only sizes that are cheap and run no user code."""
    kind = type(value)
    if any(kind is sized for sized in _SIZED_TYPES):  # not `in`, which a metaclass may override
        return f"{kind.__name__} of {len(value)}"
    if kind is type:
        return f"class {_name(value)}"
    module = _module(kind)
    if type(module) is str and module.split(".")[0] in _SHAPED:
        try:
            shape = tuple(int(side) for side in value.shape)
            dtype = getattr(value, "dtype", None)
            return f"{_name(kind)} {shape}" + (f" {dtype}" if dtype is not None else "")
        except BaseException:
            return _name(kind)
    return _name(kind)


# from `type` itself, since a metaclass may override these
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_module: Callable[[type], Any] = type.__dict__["__module__"].__get__


_SHORT_TYPES = (bool, int, float, type(None))  # never too long


def as_json(value: Any) -> list[Any]:
    """[value] if JSON represents it exactly and briefly, else []. Exact built-in types only."""
    try:
        plain = _plain(value, _MAX_DEPTH)
        if type(plain) not in _SHORT_TYPES and len(json.dumps(plain)) > _MAX_JSON_CHARS:
            return []
        return [plain]
    except (ValueError, OverflowError):
        return []


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        if value.bit_length() > 4096:
            raise ValueError
        return value
    if kind is float:
        if not math.isfinite(value):
            raise ValueError
        return value
    kind = next((plain for own_type, plain in _PLAIN_TYPES.items() if kind is own_type), kind)
    if kind is str:
        value.encode("utf-8")  # a lone surrogate raises UnicodeEncodeError, a ValueError
        return str(value)
    if depth and kind in (list, tuple):
        return [_plain(item, depth - 1) for item in _checked_length(value)]
    if depth and kind is dict and all(type(key) is str for key in value):
        return {key: _plain(item, depth - 1) for key, item in _checked_length(value.items())}
    raise ValueError


def _checked_length(items: Any) -> Any:
    if len(items) > _MAX_JSON_CHARS:
        raise ValueError
    return items
