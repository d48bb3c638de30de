"""Hooks that cells set in the process. They are code and not kept; notes name those that are missing."""

from __future__ import annotations

import builtins
import itertools
import logging
import sys
import threading
import types
import warnings
from typing import Any

_MODULES = (sys, threading, warnings)
_HOOKS = ("excepthook", "unraisablehook", "showwarning", "formatwarning")
_IGNORED_ORIGINS = ("quire", "IPython", "ipykernel", "logging")  # logging: captureWarnings, see standard_modules.py
_PLAIN = (bool, int, float, complex, bytes, str)  # no lists, which may be shared with variables
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_MAX_NAME_CHARS = 60  # of a name in a note


def hooks() -> dict[str, Any]:
    """Hooks for errors and warnings."""
    found = itertools.product(_MODULES, _HOOKS)
    return {f"{module.__name__}.{name}": vars(module)[name] for module, name in found if name in vars(module)}


def hooks_since(began: dict[str, Any], now: dict[str, Any]) -> dict[str, list[str]] | None:
    """The origin of each hook that was set, by name."""
    changed = {name: _origin(hook) for name, hook in now.items() if hook is not began.get(name)}
    return {name: origin for name, origin in changed.items() if not _is_from_quire(origin)} or None


def put_hooks(taken: dict[str, list[str]]) -> list[str]:
    """Notes on missing hooks. Those that libraries set on import are already back."""
    there = hooks()
    missing = [name for name, origin in taken.items() if name not in there or _origin(there[name]) != origin]
    return [f"{name} is code and was not kept; set it again." for name in missing]


def built_in() -> dict[str, Any]:
    return dict(vars(builtins))


def built_in_since(began: dict[str, Any], now: dict[str, Any]) -> dict[str, Any] | None:
    """Builtins that cells added or replaced: plain data as values, others by origin."""
    values: dict[str, Any] = {}
    code: dict[str, list[str]] = {}
    for name, value in now.items():
        if type(name) is not str or name.startswith("_") or (name in began and began[name] is value):
            continue
        if value is None or type(value) in _PLAIN:
            values[name] = value
        elif not _is_from_quire(origin := _origin(value)):
            code[name] = origin
    return {"values": values, "code": code} if values or code else None


def put_built_in(taken: dict[str, Any]) -> list[str]:
    """Restore plain data; notes on missing code."""
    vars(builtins).update(taken["values"])
    there = vars(builtins)
    missing = [name for name, origin in taken["code"].items() if name not in there or _origin(there[name]) != origin]
    return [f"builtins.{name[:_MAX_NAME_CHARS]} was not kept; set it again." for name in missing]


def _origin(value: Any) -> list[str]:
    """Module and name of a function, class or value's class, without running its code."""
    if type(value) in _FUNCTIONS:
        found = [getattr(value, name, None) for name in ("__module__", "__qualname__")]
    else:
        kind = value if issubclass(type(value), type) else type(value)
        found = [type.__dict__["__dict__"].__get__(kind).get("__module__"), type.__dict__["__name__"].__get__(kind)]
    return [text[:_MAX_NAME_CHARS] if type(text) is str else "" for text in found]


def _is_from_quire(origin: list[str]) -> bool:
    return origin[0].partition(".")[0] in _IGNORED_ORIGINS


def handlers() -> dict[str, int]:
    """The number of handlers of each named logger, without NullHandlers."""
    loggers = dict(logging.root.manager.loggerDict)
    counted = {
        name: sum(type(handler) is not logging.NullHandler for handler in logger.handlers)
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
    }
    return {name: count for name, count in counted.items() if count}


def handlers_since(began: dict[str, int], now: dict[str, int]) -> dict[str, int] | None:
    return {name: count for name, count in now.items() if count > began.get(name, 0)} or None


def put_handlers(taken: dict[str, int]) -> list[str]:
    """Notes on missing handlers. Those that libraries add on import are already back."""
    there = handlers()
    missing = [name for name, count in taken.items() if there.get(name, 0) < count]
    return [f"Handlers of the logger {name[:_MAX_NAME_CHARS]} are not kept; add them again." for name in missing]
