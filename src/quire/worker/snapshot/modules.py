"""Which modules a new process would find again, and what those of libraries hold by name."""

from __future__ import annotations

import contextlib
import dis
import os
import sys
import types
from typing import Any

_MAIN_MODULES = ("__main__", "__mp_main__")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_STANDARD = os.path.dirname(os.__file__) + "/"
_STORE = dis.opmap["STORE_GLOBAL"]
_found_specs: dict[str, tuple[Any, bool]] = {}  # package -> its spec, and whether an import finds it


def importable(module: Any) -> bool:
    """Not a module made by hand, nor one loaded from a place that no import looks at: no new process would have it."""
    name = getattr(module, "__name__", None)
    if type(name) is not str or name in _MAIN_MODULES:
        return False
    top, _, inner = name.partition(".")
    if getattr(module, "__spec__", None) is None and not inner:
        return False
    return top == "quire" or top in sys.stdlib_module_names or _is_found_again(top)


def _is_found_again(package: str) -> bool:
    spec = getattr(sys.modules.get(package), "__spec__", None)
    if spec is None:
        return True
    known = _found_specs.get(package)
    if known is None or known[0] is not spec:
        known = _found_specs[package] = (spec, _search(package, spec))
    return known[1]


def _search(package: str, spec: Any) -> bool:
    """As an import would, had it not been imported yet."""
    for finder in list(sys.meta_path):
        again = None
        with contextlib.suppress(BaseException):  # a finder of anyone's
            again = finder.find_spec(package, None)
        if again is not None:
            return _is_same(again.origin, getattr(spec, "origin", None))
    return False


def _is_same(here: Any, there: Any) -> bool:
    if here == there or type(here) is not str or type(there) is not str:
        return True
    try:
        return os.path.samefile(here, there)
    except OSError:
        return False


def is_library(module: Any) -> bool:
    """Installed, or part of Python: not a file of the user's own."""
    if type(module) is not types.ModuleType and not isinstance(module, types.ModuleType):
        return False
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    if type(origin) is not str:
        return False
    return origin in ("built-in", "frozen") or origin.startswith(_STANDARD) or any(e in origin for e in _INSTALLED)


def library_modules(name: Any) -> list[tuple[str, types.ModuleType]]:
    """The module of that name and the packages it is in, of a library that can be imported again."""
    found: list[tuple[str, types.ModuleType]] = []
    while type(name) is str and name and name not in _MAIN_MODULES:
        module = sys.modules.get(name)
        if module is not None and is_library(module) and importable(module):
            found.append((name, module))
        name = name.rpartition(".")[0]
    return found


def attributes_by_type(module: types.ModuleType) -> dict[int, dict[int, str]]:
    """Of each type, by its id, the objects that the module has: their ids, and their names, public ones first."""
    index: dict[int, dict[int, str]] = {}
    for name, value in list(vars(module).items()):
        names = index.setdefault(id(type(value)), {})
        if type(name) is str and names.get(id(value), "_").startswith("_"):
            names[id(value)] = name
    return index


def sentinel_objects() -> dict[int, tuple[str, str]]:
    """Every bare object that some module has: its id, and where it is."""
    return {
        id(value): (module_name, name)
        for module_name, module in list(sys.modules.items())
        if type(module) is types.ModuleType
        for name, value in list(vars(module).items())
        if type(value) is object and type(name) is str and importable(module)
    }


def is_rebound(module: str, name: str) -> bool:
    """By a function of the module: what a new process has there may be another object, or None yet."""
    own = vars(sys.modules[module])
    for value in list(own.values()):
        if type(value) is types.FunctionType and value.__globals__ is own and name in value.__code__.co_names:
            at = value.__code__.co_names.index(name) & 0xFF
            code = value.__code__.co_code
            if any(code[place + 1] == at for place in range(0, len(code), 2) if code[place] == _STORE):
                return True
    return False


def module_with(name: str, value: Any) -> str:
    """Some module that has this very object under this name; "" where there is none."""
    for module_name, module in list(sys.modules.items()):
        if type(module) is types.ModuleType and vars(module).get(name) is value and importable(module):
            return module_name
    return ""
