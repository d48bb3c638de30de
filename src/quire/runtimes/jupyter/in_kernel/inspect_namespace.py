"""Describes a namespace without running the user's code. Runs in the kernel, on Python 3.8 and later."""

import json
import types
from typing import Any

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range)
_SHAPED = ("numpy", "pandas", "polars", "torch", "xarray", "scipy", "jax", "pyarrow")
_HIDDEN = ("In", "Out", "exit", "quit", "get_ipython", "open")
_NAMES, _CHARS, _JSON = 2000, 200, 20000


def inspect(namespace: dict[str, Any]) -> str:
    import inspect as looking

    variables: dict[str, str] = {}
    functions: list[dict[str, str]] = []
    more = 0
    for name, value in list(namespace.items()):
        if type(name) is not str or name.startswith("_") or name in _HIDDEN or isinstance(value, types.ModuleType):
            continue
        if len(variables) + len(functions) >= _NAMES:
            more += 1
        elif type(value) is types.FunctionType:
            try:
                signature = str(looking.signature(value))[:500]
            except Exception:
                signature = "(...)"
            docstring = value.__doc__ if type(value.__doc__) is str else ""
            doc = docstring.strip().split("\n", 1)[0][:_CHARS]
            functions.append({"name": name[:_CHARS], "signature": signature, "docstring": doc})
        else:
            variables[name[:_CHARS]] = type_of(value)[:_CHARS]
    if more:
        variables["..."] = f"{more} more"
    return json.dumps({"variables": variables, "functions": functions})


def type_of(value: Any) -> str:
    kind = type(value)
    if kind in _SIZED:
        return f"{kind.__name__} of {len(value)}"
    if kind is type:
        return f"class {value.__name__}"
    if str(kind.__module__).split(".")[0] in _SHAPED:
        try:
            dtype = getattr(value, "dtype", None)
            shape = tuple(int(side) for side in value.shape)
            return f"{kind.__name__} {shape}" + (f" {dtype}" if dtype is not None else "")
        except Exception:
            return kind.__name__
    return kind.__name__


def read(namespace: dict[str, Any], name: str) -> str:
    if name not in namespace:
        return json.dumps({"value": [], "what": "there is no variable of that name"})
    value = namespace[name]
    try:
        text = json.dumps(value, allow_nan=False)
        is_complete = len(text) <= _JSON and type(value) in (*_SIZED, int, float, bool, type(None))
        plain = [json.loads(text)] if is_complete else []
    except (TypeError, ValueError, RecursionError, OverflowError):
        plain = []
    return json.dumps({"value": plain, "what": type_of(value)})
