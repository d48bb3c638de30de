"""Save and restore options and random states of loaded libraries as plain data. Imports no library."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

_BACKENDS = ("backend", "backend_fallback")  # of matplotlib, set by the kernel


class NotPlainData(Exception):
    """The value is not plain data."""


def plain_data(value: Any) -> Any:
    """The value in plain types only, whose pickle runs no code. Raises NotPlainData."""
    if value is None or type(value) in (bool, int, float, complex, bytes, str):
        return value
    if isinstance(value, str):  # an enum of text
        return str.__str__(value)
    if type(value) in (list, tuple):
        return type(value)(map(plain_data, value))
    if type(value) is dict:
        return {plain_data(key): plain_data(item) for key, item in value.items()}
    if type(value).__name__ == "Cycler" and type(value).__module__ == "cycler":
        return repr(value)  # matplotlib parses it
    raise NotPlainData(type(value).__name__)


def plain_items(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The entries that are plain data."""
    found = {}
    for name, value in items:
        try:
            found[name] = plain_data(value)
        except NotPlainData:
            continue
    return found


def numpy_state() -> dict[str, Any] | None:
    """Print options, error handling, and the state of the legacy global generator."""
    numpy = sys.modules.get("numpy")
    if not hasattr(numpy, "get_printoptions"):  # not loaded, or being imported
        return None
    assert numpy is not None
    taken = {"print": plain_items(numpy.get_printoptions().items()), "errors": dict(numpy.geterr())}
    if "numpy.random" in sys.modules:
        taken["random"] = _without_arrays(numpy.random.get_state(legacy=False))
    return taken


def put_numpy(taken: dict[str, Any]) -> list[str]:
    numpy = _library("numpy")
    formatter = {} if taken["print"].get("formatter", 0) is None else {"formatter": None}
    numpy.set_printoptions(**{**taken["print"], **formatter})
    numpy.seterr(**taken["errors"])
    if "random" in taken:
        numpy.random.set_state(_with_arrays(taken["random"], numpy))
    return [] if "formatter" in taken["print"] else ["numpy's print option formatter is code and was not kept."]


def _without_arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _without_arrays(value) for key, value in state.items()}
    if hasattr(state, "tobytes") and state.ndim:
        return ["array", str(state.dtype), state.tobytes()]
    return plain_data(state.item() if hasattr(state, "item") else state)


def _with_arrays(state: Any, numpy: Any) -> Any:
    if isinstance(state, dict):
        return {key: _with_arrays(value, numpy) for key, value in state.items()}
    return numpy.frombuffer(state[2], dtype=state[1]) if isinstance(state, list) else state


def pandas_options() -> dict[str, Any] | None:
    """Options that differ from their defaults."""
    config = sys.modules.get("pandas._config.config")
    if config is None:
        return None
    changed = []
    for name, option in list(config._registered_options.items()):
        value: Any = config._global_config
        for part in name.split("."):
            value = value[part]
        if value is not option.defval:
            changed.append((name, value, option.defval))
    return _changed_options(changed)


def put_pandas(taken: dict[str, Any]) -> list[str]:
    pandas = _library("pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for deprecated options
        return _set_options("pandas", taken, pandas.set_option)


def matplotlib_settings() -> dict[str, Any] | None:
    """Entries of rcParams that changed since matplotlib was loaded."""
    matplotlib = sys.modules.get("matplotlib")
    now, start = getattr(matplotlib, "rcParams", None), getattr(matplotlib, "rcParamsOrig", None)
    if now is None or start is None:
        return None
    before = dict(dict.items(start))  # by dict.items, since a lookup could select a backend
    items = [(name, value, before.get(name)) for name, value in dict.items(now) if name not in _BACKENDS]
    return _changed_options(items)


def put_matplotlib(taken: dict[str, Any]) -> list[str]:
    return _set_options("matplotlib", taken, _library("matplotlib").rcParams.__setitem__)


def matplotlib_bars() -> int | None:
    """Interpolation steps of the rectangle shared by all bars, which polar plots change."""
    shared = getattr(getattr(sys.modules.get("matplotlib.path"), "Path", None), "_unit_rectangle", None)
    steps = getattr(shared, "_interpolation_steps", 1)
    return steps if type(steps) is int and steps != 1 else None


def put_bars(steps: int) -> list[str]:
    importlib.import_module("matplotlib.path").Path.unit_rectangle()._interpolation_steps = steps
    return []


def mpmath_precision() -> dict[str, Any] | None:
    """The global context of mpmath, if it was changed."""
    own = getattr(sys.modules.get("mpmath"), "mp", None)
    if own is None:
        return None
    taken = {"prec": own.prec, "pretty": own.pretty, "trap_complex": own.trap_complex}
    return plain_items(taken.items()) if taken != _MPMATH else None


_MPMATH = {"prec": 53, "pretty": False, "trap_complex": False}


def put_mpmath(taken: dict[str, Any]) -> list[str]:
    own = _library("mpmath").mp
    return _set_options("mpmath", taken, lambda name, value: setattr(own, name, value))


def _changed_options(options: list[tuple[str, Any, Any]]) -> dict[str, Any] | None:
    """Changed options by name, from (name, value, initial value). Names of code are under ''."""
    found: dict[str, Any] = {}
    for name, value, start in options:
        try:
            data = plain_data(value)
        except NotPlainData:
            if value is not start:
                found.setdefault("", []).append(name)
            continue
        if data not in plain_items([("", start)]).values():
            found[name] = data
    return found or None


def _set_options(library: str, taken: dict[str, Any], put: Callable[[str, Any], None]) -> list[str]:
    notes = [f"{library}'s option {name} is code and was not kept." for name in taken.get("", ())]
    for name, value in taken.items():
        if name:
            try:
                put(name, value)
            except Exception as error:
                notes.append(f"{library}'s option {name} could not be put back ({type(error).__name__}).")
    return notes


def _library(name: str) -> Any:
    return sys.modules.get(name) or importlib.import_module(name)
