"""What is in a namespace, said without running any of the user's code."""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable
from typing import Any

from quire.worker.capabilities.results import Contents, Record, Text
from quire.worker.execution import history

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range, Record, Text, Contents)
_OURS: dict[type, type] = {Record: dict, Text: str, Contents: list}  # plain, but for their names
_SHAPED = ("numpy", "pandas", "polars", "torch", "xarray", "scipy", "jax", "pyarrow")
_JSON_CHARS = 20_000
_NAMES = 2_000  # of a namespace that are listed
_CHARS = 200  # of a name or a type
_SIGNATURE = 500  # characters
_DEPTH = 20


def describe(namespace: dict[str, Any]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Variables as {name: type with its size}, functions as [{name, signature, docstring}]."""
    variables: dict[str, str] = {}
    functions: list[dict[str, str]] = []
    left_out = 0
    for name, value in list(namespace.items()):
        if type(name) is not str or name.startswith("_") or issubclass(type(value), types.ModuleType):
            continue
        if history.is_ours(name):
            continue
        if len(variables) + len(functions) >= _NAMES:
            left_out += 1
        elif type(value) is types.FunctionType:
            functions.append({"name": name[:_CHARS], "signature": signature(value), "docstring": doc(value)})
        else:
            variables[name[:_CHARS]] = type_of(value)[:_CHARS]
    if left_out:
        variables["..."] = f"{left_out:,} more"
    return variables, functions


def signature(function: types.FunctionType) -> str:
    try:
        whole = inspect.signature(function, follow_wrapped=False)
        said = [
            each.replace(
                default=each.default if each.default is each.empty else _Said(_plainly(each.default)),
                annotation=each.annotation if each.annotation is each.empty else _Said(_plainly(each.annotation)),
            )
            for each in whole.parameters.values()
        ]
        returns = whole.return_annotation
        if returns is not whole.empty:
            returns = _Said(_plainly(returns))
        return str(whole.replace(parameters=said, return_annotation=returns))[:_SIGNATURE]
    except BaseException:
        return "(...)"


class _Said:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _plainly(value: Any) -> str:
    """A default or an annotation in few characters; what only its own code could say is left out."""
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
    """`DataFrame (3, 2)`, `list of 5`, `int`: only sizes that cost nothing and run no user code."""
    kind = type(value)
    if any(kind is sized for sized in _SIZED):  # not `in`: a metaclass may answer to ==
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


# asked of `type` itself: a metaclass may answer to these with code of its own
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_module: Callable[[type], Any] = type.__dict__["__module__"].__get__


_BRIEF = (bool, int, float, type(None))  # within the limit, whatever they are


def as_json(value: Any) -> list[Any]:
    """[value] where JSON says it exactly and briefly, else []. Exact built-in types only."""
    try:
        plain = _plain(value, _DEPTH)
        if type(plain) not in _BRIEF and len(json.dumps(plain)) > _JSON_CHARS:
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
    kind = next((plain for ours, plain in _OURS.items() if kind is ours), kind)
    if kind is str:
        value.encode("utf-8")  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        return str(value)
    if depth and kind in (list, tuple):
        return [_plain(item, depth - 1) for item in _few(value)]
    if depth and kind is dict and all(type(key) is str for key in value):
        return {key: _plain(item, depth - 1) for key, item in _few(value.items())}
    raise ValueError


def _few(items: Any) -> Any:
    if len(items) > _JSON_CHARS:
        raise ValueError
    return items
