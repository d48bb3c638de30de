"""Save and restore the state of the process around a namespace, as plain data, each part separately."""

from __future__ import annotations

import contextlib
import importlib
import locale
import logging
import os
import random
import re
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quire.worker.snapshot import hooks, options
from quire.worker.snapshot import process_settings as settings
from quire.worker.snapshot import standard_modules as modules

_MAX_ERROR_CHARS = 200  # of an error
_LIMITS = "limits of the process"
_versions: dict[str, str] = {}  # cache, since looking up versions is slow


@dataclass(frozen=True)
class _Part:
    """`take` returns the state or None, `put` restores it and returns notes."""

    take: Callable[[], Any]
    put: Callable[[Any], list[str]]
    since: Callable[[Any, Any], Any] = lambda began, now: now if now != began else None
    from_start: bool = True  # only changes since the start of the process are saved


@dataclass
class _InitialState:
    parts: dict[str, Any]
    modules: frozenset[str]


_initial_state: _InitialState | None = None


def remember_initial_state() -> None:
    """Remember the state of a new process before user code runs."""
    global _initial_state
    parts = {}
    for name, part in {**_BEFORE, **_AFTER}.items():
        with contextlib.suppress(Exception):
            parts[name] = part.take() if part.from_start else None
    _initial_state = _InitialState(parts, frozenset(sys.modules))


def remember_entered_state() -> None:
    """Treat the current folder, path, environment and limits as initial, when the kernel is set up."""
    if _initial_state is None:
        remember_initial_state()
        return
    for name, part in {**_BEFORE, _LIMITS: _AFTER[_LIMITS]}.items():
        _initial_state.parts[name] = part.take()


def capture(namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """The state that differs from the initial one, and modules imported in `namespace`, by default that of __main__.

    It includes environment variables that cells set, so secrets among them can be read by anyone who can read the
    snapshot.
    """
    if _initial_state is None:
        remember_initial_state()
    assert _initial_state is not None
    parts, notes = {}, []
    for name, part in {**_BEFORE, **_AFTER}.items():
        try:
            changed = part.since(_initial_state.parts.get(name), part.take())
        except Exception as error:
            notes.append(f"The {name} could not be kept ({_error_text(error)}).")
        else:
            if changed is not None:
                parts[name] = changed
    named = vars(sys.modules["__main__"]) if namespace is None else namespace
    imports = _imported(named, _initial_state.modules)
    return {
        "python": list(sys.version_info[:3]),
        "parts": parts,
        "imports": imports,
        "versions": _versions_of({name.partition(".")[0] for name in imports}),
        "notes": notes,
    }


def restore(captured: dict[str, Any]) -> list[str]:
    """Restore all; notes on parts that could not be restored or differ now."""
    return restore_before_load(captured) + restore_after_load(captured)


def restore_before_load(captured: dict[str, Any]) -> list[str]:
    """Restore what loading needs: environment, paths, current folder, imports."""
    notes = list(captured["notes"]) + _restore_parts(_BEFORE, captured)
    was, now = captured["python"], sys.version_info
    if was[:2] != list(now[:2]):
        notes.append(f"Python is {now[0]}.{now[1]} now, was {was[0]}.{was[1]}.")
    notes += [note for name in captured["imports"] for note in _import(name)]
    versions = _versions_of(set(captured["versions"]))
    for name, version in captured["versions"].items():
        if versions.get(name, version) != version:
            notes.append(f"{name} is {versions[name]} now, was {version}.")
    return notes


def restore_after_load(captured: dict[str, Any]) -> list[str]:
    """Restore what loading may change: random states, options, filters, levels."""
    return _restore_parts(_AFTER, captured)


def _restore_parts(parts: dict[str, _Part], captured: dict[str, Any]) -> list[str]:
    notes: list[str] = []
    for name, part in parts.items():
        if name in captured["parts"]:
            try:
                notes += part.put(captured["parts"][name])
            except Exception as error:
                notes.append(f"The {name} could not be put back ({_error_text(error)}).")
    return notes


def _error_text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:_MAX_ERROR_CHARS]}"
    except Exception:  # an error of the user whose str() raises
        return type(error).__name__


# Imports


def _imported(namespace: dict[str, Any], before: frozenset[str]) -> list[str]:
    """Modules in the namespace, loaded submodules of its packages (`import a.b` binds only a), and packages of its
    values. Modules that those import are not listed."""
    loaded = dict(sys.modules)
    known = {id(module): name for name, module in loaded.items() if name != "__main__"}
    values = list(namespace.values())
    named = {known[id(value)] for value in values if issubclass(type(value), types.ModuleType) and id(value) in known}
    packages = tuple(f"{name}." for name in named if name not in sys.stdlib_module_names)
    below = {name for name in loaded if name.startswith(packages) and name not in before and _has_spec(loaded[name])}
    homes = {_home(value).partition(".")[0] for value in values} - {"", "__main__", "quire"} - sys.stdlib_module_names
    return sorted(named | below | (homes & loaded.keys()))


def _home(value: Any) -> str:
    """The module of a function, class or value's class, without running its code."""
    if type(value) in (types.FunctionType, types.BuiltinFunctionType):
        home = value.__module__
    else:
        cls = value if issubclass(type(value), type) else type(value)
        home = type.__dict__["__dict__"].__get__(cls).get("__module__")  # ignores metaclasses of the user
    return home if type(home) is str else ""


def _has_spec(module: Any) -> bool:
    """Whether it was imported, not created by hand."""
    return issubclass(type(module), types.ModuleType) and vars(module).get("__spec__") is not None


def _import(name: str) -> list[str]:
    if name in sys.modules:
        return []
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:  # the user interrupted
        raise
    except BaseException as error:  # modules may raise anything, also SystemExit
        return [f"The module {name} could not be imported ({_error_text(error)})."]
    return []


def _versions_of(packages: set[str]) -> dict[str, str]:
    found = {}
    for name in sorted(packages - sys.stdlib_module_names):
        module = sys.modules.get(name)
        if issubclass(type(module), types.ModuleType):
            version = vars(module).get("__version__")
            version_ = version if type(version) is str else _looked_up(name)
            if version_:
                found[name] = version_
    return found


def _looked_up(name: str) -> str:
    if name not in _versions:
        metadata = importlib.import_module("importlib.metadata")
        try:
            _versions[name] = str(metadata.version(name))
        except Exception:  # a workspace module, or a package with another name
            _versions[name] = ""
    return _versions[name]


# Environment, paths, the current folder


def _environment_since(began: dict[str, str], now: dict[str, str]) -> Any:
    new = {name: value for name, value in now.items() if began.get(name) != value}
    removed = [name for name in began if name not in now]
    return {"set": new, "removed": removed} if new or removed else None


def _put_environment(changed: dict[str, Any]) -> list[str]:
    os.environ.update(changed["set"])
    for name in changed["removed"]:
        os.environ.pop(name, None)
    if "TZ" in changed["set"] or "TZ" in changed["removed"]:
        time.tzset()
    return []


def _path_since(began: list[str], now: list[str]) -> Any:
    """Added and removed entries, since the paths of libraries may change with a restart."""
    first = next((place for place, path in enumerate(now) if path in began), len(now))
    front, back = now[:first], [path for path in now[first:] if path not in began]
    removed = [path for path in began if path not in now]
    return {"front": front, "back": back, "removed": removed} if front or back or removed else None


def _put_path(changed: dict[str, list[str]]) -> list[str]:
    added = {*changed["front"], *changed["back"]}
    rest = [path for path in sys.path if path not in changed["removed"] and path not in added]
    sys.path[:] = [*changed["front"], *rest, *changed["back"]]
    importlib.invalidate_caches()
    return []


def _put_folder(folder: str) -> list[str]:
    try:
        os.chdir(folder)
    except OSError as error:
        return [f"The current folder {folder} cannot be entered ({error.strerror}); it is {os.getcwd()} now."]
    return []


# Locale, warnings


def _put_locale(wanted: str) -> list[str]:
    try:
        locale.setlocale(locale.LC_ALL, wanted)
    except locale.Error:
        return [f"The locale {wanted} is not installed; it stays {locale.setlocale(locale.LC_ALL)}."]
    return []


def _filters() -> list[Any]:
    found = []
    filters: Any = warnings.filters
    for action, message, category, module, line in filters:
        texts = [
            [text.pattern, text.flags] if isinstance(text, re.Pattern) else options.plain_data(text)
            for text in (message, module)
        ]
        found.append([action, texts[0], [category.__module__, category.__qualname__], texts[1], line])
    return found


def _put_filters(wanted: list[Any]) -> list[str]:
    made: list[Any] = []
    notes = []
    for action, message, (home, name), module, line in wanted:
        _import(home)
        category: Any = sys.modules.get(home)
        for part in name.split("."):
            category = getattr(category, part, None)
        if isinstance(category, type):
            made.append((action, _pattern(message), category, _pattern(module), line))
        else:
            notes.append(f"A warnings filter for {home}.{name} was not put back: there is no such category now.")
    warnings.resetwarnings()  # invalidates the caches of modules
    warnings.filters[:] = made  # type: ignore[index]
    return notes


def _pattern(text: Any) -> Any:
    return re.compile(text[0], text[1]) if isinstance(text, list) else text


def _no_notes(put: Callable[[Any], object]) -> Callable[[Any], list[str]]:
    def done(value: Any) -> list[str]:
        put(value)
        return []

    return done


_BEFORE = {
    "environment": _Part(lambda: dict(os.environ), _put_environment, _environment_since),
    "search path": _Part(lambda: [path for path in sys.path if isinstance(path, str)], _put_path, _path_since),
    "current folder": _Part(os.getcwd, _put_folder),
    "signal handlers": _Part(settings.signal_handlers, settings.put_signal_handlers, settings.signal_handlers_since),
}
_AFTER = {
    "recursion limit": _Part(sys.getrecursionlimit, _no_notes(sys.setrecursionlimit)),
    "locale": _Part(lambda: locale.setlocale(locale.LC_ALL), _put_locale),
    "levels of logging": _Part(modules.loggers, modules.put_loggers, modules.loggers_since),
    "handlers of loggers": _Part(hooks.handlers, hooks.put_handlers, hooks.handlers_since),
    "names of levels": _Part(modules.level_names, _no_notes(modules.put_level_names), modules.level_names_since),
    "decimal context": _Part(modules.decimal_context, _no_notes(modules.put_decimal_context)),
    "default decimal context": _Part(modules.default_decimal_context, _no_notes(modules.put_default_decimal_context)),
    "types of mimetypes": _Part(modules.mime_types, _no_notes(modules.put_mime_types), from_start=False),
    "tracemalloc": _Part(modules.traced_frames, _no_notes(modules.put_traced_frames)),
    "faulthandler": _Part(modules.dumps_faults, _no_notes(modules.put_dumps_faults)),
    "warnings in logging": _Part(modules.captures_warnings, _no_notes(logging.captureWarnings)),
    "hooks": _Part(hooks.hooks, hooks.put_hooks, hooks.hooks_since),
    "attributes of builtins": _Part(hooks.built_in, hooks.put_built_in, hooks.built_in_since),
    "switch interval": _Part(settings.switch_interval, _no_notes(settings.put_switch_interval)),
    "stacks of threads": _Part(threading.stack_size, _no_notes(threading.stack_size)),
    _LIMITS: _Part(settings.limits, settings.put_limits, settings.limits_since),
    "options of pandas": _Part(options.pandas_options, options.put_pandas, from_start=False),
    "settings of matplotlib": _Part(options.matplotlib_settings, options.put_matplotlib, from_start=False),
    "bars of matplotlib": _Part(options.matplotlib_bars, options.put_bars, from_start=False),
    "precision of mpmath": _Part(options.mpmath_precision, options.put_mpmath, from_start=False),
    "garbage collector": _Part(settings.collector, _no_notes(settings.put_collector)),
    "umask": _Part(settings.umask, _no_notes(os.umask)),
    "dialects of csv": _Part(settings.csv_dialects, _no_notes(settings.put_csv_dialects), from_start=False),
    "timeout of sockets": _Part(settings.socket_timeout, _no_notes(settings.put_socket_timeout), from_start=False),
    "functions of sqlite3": _Part(settings.sqlite_functions, settings.put_sqlite_functions, from_start=False),
    "state of numpy": _Part(options.numpy_state, options.put_numpy),
    "warnings filters": _Part(_filters, _put_filters),
    "state of random": _Part(random.getstate, _no_notes(random.setstate)),
}
