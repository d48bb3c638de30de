"""Save and restore settings of standard library modules as plain data. None: nothing to save.

Imports no module.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from typing import Any

_FIELDS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_STANDARD: dict[str, Any] = {
    **dict(zip(_FIELDS, (28, "ROUND_HALF_EVEN", -999_999, 999_999, 1, 0), strict=True)),
    "traps": ["DivisionByZero", "InvalidOperation", "Overflow"],
    "flags": [],
}
_types: dict[str, Any] = {}  # initial types of mimetypes


def loggers() -> dict[str, Any]:
    found = {"": logging.root, **logging.root.manager.loggerDict}
    levels = {name: vars(logger).get("level") for name, logger in found.items() if isinstance(logger, logging.Logger)}
    return {"levels": levels, "disable": logging.root.manager.disable, "handlers": len(logging.root.handlers)}


def loggers_since(began: dict[str, Any], now: dict[str, Any]) -> Any:
    levels = {name: level for name, level in now["levels"].items() if level != began["levels"].get(name, 0)}
    changed = {"levels": levels, "disable": now["disable"], "handlers": now["handlers"] != began["handlers"]}
    return changed if levels or now["disable"] != began["disable"] or changed["handlers"] else None


def put_loggers(changed: dict[str, Any]) -> list[str]:
    for name, level in changed["levels"].items():
        logging.getLogger(name or None).setLevel(level)
    logging.disable(changed["disable"])
    return ["Handlers of the root logger are not kept; call logging.basicConfig again."] * changed["handlers"]


def level_names() -> dict[str, Any]:
    """Levels by name, and displayed names by level."""
    levels = logging.getLevelNamesMapping()
    return {"levels": levels, "shown": {level: logging.getLevelName(level) for level in levels.values()}}


def level_names_since(began: dict[str, Any], now: dict[str, Any]) -> dict[str, Any] | None:
    changed = {part: {key: value for key, value in now[part].items() if began[part].get(key) != value} for part in now}
    return changed if any(changed.values()) else None


def put_level_names(changed: dict[str, Any]) -> None:
    for name, level in changed["levels"].items():
        logging.addLevelName(level, name)
    for level, name in changed["shown"].items():  # the last added name is displayed
        logging.addLevelName(level, name)


def captures_warnings() -> bool:
    return getattr(warnings.showwarning, "__module__", "") == "logging"


def decimal_context() -> dict[str, Any] | None:
    """The context of this thread."""
    decimal = sys.modules.get("decimal")
    return _context(decimal.getcontext()) if decimal is not None else None


def default_decimal_context() -> dict[str, Any] | None:
    """The context of new threads."""
    decimal = sys.modules.get("decimal")
    return _context(decimal.DefaultContext) if decimal is not None else None


def _context(context: Any) -> dict[str, Any] | None:
    taken: dict[str, Any] = {name: getattr(context, name) for name in _FIELDS}
    for kind in ("traps", "flags"):
        taken[kind] = sorted(signal.__name__ for signal, on in getattr(context, kind).items() if on)
    return taken if taken != _STANDARD else None


def put_decimal_context(taken: dict[str, Any] | None) -> None:
    _set_context(importlib.import_module("decimal").getcontext(), taken)


def put_default_decimal_context(taken: dict[str, Any] | None) -> None:
    decimal = importlib.import_module("decimal")
    decimal.getcontext()  # creates this thread's own context first
    _set_context(decimal.DefaultContext, taken)


def _set_context(context: Any, taken: dict[str, Any] | None) -> None:
    for name in _FIELDS:
        setattr(context, name, (taken or _STANDARD)[name])
    for kind in ("traps", "flags"):
        signals = getattr(context, kind)
        for signal in signals:
            signals[signal] = signal.__name__ in (taken or _STANDARD)[kind]


def mime_types() -> dict[str, dict[str, str]] | None:
    """Added types by file extension: official and other ones."""
    mimetypes = sys.modules.get("mimetypes")
    if not getattr(mimetypes, "inited", False):
        return None
    assert mimetypes is not None
    if not _types:
        standard = mimetypes.MimeTypes()
        for file in filter(os.path.isfile, mimetypes.knownfiles):
            standard.read(file)
        _types.update(official=standard.types_map[True], other=standard.types_map[False])
    now = {"official": mimetypes.types_map, "other": mimetypes.common_types}
    added = {part: {end: kind for end, kind in now[part].items() if _types[part].get(end) != kind} for part in now}
    return added if any(added.values()) else None


def put_mime_types(added: dict[str, dict[str, str]]) -> None:
    mimetypes = importlib.import_module("mimetypes")
    for part, strict in (("official", True), ("other", False)):
        for end, kind in added[part].items():
            mimetypes.add_type(kind, end, strict)


def traced_frames() -> int:
    """Frames that tracemalloc stores; 0 if it is off."""
    tracemalloc = sys.modules.get("tracemalloc")
    return tracemalloc.get_traceback_limit() if tracemalloc is not None and tracemalloc.is_tracing() else 0


def put_traced_frames(frames: int) -> None:
    tracemalloc = importlib.import_module("tracemalloc")
    tracemalloc.start(frames) if frames else tracemalloc.stop()


def dumps_faults() -> bool:
    faulthandler = sys.modules.get("faulthandler")
    return faulthandler is not None and faulthandler.is_enabled()


def put_dumps_faults(on: bool) -> None:
    faulthandler = importlib.import_module("faulthandler")
    faulthandler.enable() if on else faulthandler.disable()
