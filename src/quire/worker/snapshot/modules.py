"""Which modules a new process can import, and the attributes of library modules."""

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
    """Whether a new process can import the module: not if it was created or loaded by hand."""
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
    """Search for the package as a first import would."""
    for finder in list(sys.meta_path):
        again = None
        with contextlib.suppress(BaseException):  # finders may raise anything
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
    """Whether it is installed or part of Python, not a file of the user."""
    if type(module) is not types.ModuleType and not isinstance(module, types.ModuleType):
        return False
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    if type(origin) is not str:
        return False
    return origin in ("built-in", "frozen") or origin.startswith(_STANDARD) or any(e in origin for e in _INSTALLED)


def library_modules(name: Any) -> list[tuple[str, types.ModuleType]]:
    """The module and its packages, if they are importable libraries."""
    found: list[tuple[str, types.ModuleType]] = []
    while type(name) is str and name and name not in _MAIN_MODULES:
        module = sys.modules.get(name)
        if module is not None and is_library(module) and importable(module):
            found.append((name, module))
        name = name.rpartition(".")[0]
    return found


def attributes_by_type(module: types.ModuleType) -> dict[int, dict[int, str]]:
    """The attributes of a module: by id of their type, the id of each object with its name, preferably public."""
    index: dict[int, dict[int, str]] = {}
    for name, value in list(vars(module).items()):
        names = index.setdefault(id(type(value)), {})
        if type(name) is str and names.get(id(value), "_").startswith("_"):
            names[id(value)] = name
    return index


def sentinel_objects() -> dict[int, tuple[str, str]]:
    """All `object()` sentinels in modules: id, module and name."""
    return {
        id(value): (module_name, name)
        for module_name, module in list(sys.modules.items())
        if type(module) is types.ModuleType
        for name, value in list(vars(module).items())
        if type(value) is object and type(name) is str and importable(module)
    }


def is_rebound(module: str, name: str) -> bool:
    """Whether a function of the module assigns the name, so that its value may differ in a new process."""
    own = vars(sys.modules[module])
    for value in list(own.values()):
        if type(value) is types.FunctionType and value.__globals__ is own and name in value.__code__.co_names:
            at = value.__code__.co_names.index(name) & 0xFF
            code = value.__code__.co_code
            if any(code[place + 1] == at for place in range(0, len(code), 2) if code[place] == _STORE):
                return True
    return False


def module_with(name: str, value: Any) -> str:
    """A module with this object under this name, or ""."""
    for module_name, module in list(sys.modules.items()):
        if type(module) is types.ModuleType and vars(module).get(name) is value and importable(module):
            return module_name
    return ""
