"""A line after a traceback that suggests the next step. It names only what exists: names the code could use, modules
that can be imported, packages known to contain the module."""

from __future__ import annotations

import builtins
import difflib
import importlib.util
import pkgutil
import re
import shutil
import sys
import types
from collections.abc import Iterable
from typing import Any

from quire.worker.environment import distributions, pip
from quire.worker.execution.history import is_kernel_name

_MAX_NAMES = 5_000  # compared with a wrong name
_MAX_NAME_CHARS = 60  # of a compared name
_BUILT_IN_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_MIN_SIMILARITY = 0.7  # from 0 to 1
_PROGRAMS = {"cat", "cp", "curl", "find", "git", "grep", "head", "ls", "mkdir", "mv", "node", "npm", "rm", "tail"}
_STATEMENTS = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "pl": "import polars as pl",
    "plt": "import matplotlib.pyplot as plt",
    "sns": "import seaborn as sns",
    "px": "import plotly.express as px",
    "nx": "import networkx as nx",
    "Path": "from pathlib import Path",
    "Counter": "from collections import Counter",
    "defaultdict": "from collections import defaultdict",
    "dataclass": "from dataclasses import dataclass",
}


def hint(error: BaseException) -> str:
    """One line that says what to try next, or ""."""
    try:
        if isinstance(error, ModuleNotFoundError):
            return _hint_for_module(error)
        if isinstance(error, ImportError):
            return _hint_for_import(error)
        if isinstance(error, AttributeError):
            return _hint_for_attribute(error)
        if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
            return _hint_for_name(error)
    except Exception:  # a hint must not cause a second error
        pass
    return ""


def _hint_for_name(error: NameError) -> str:
    wrong = error.name
    if type(wrong) is not str or not wrong.isidentifier():
        return ""
    if wrong.startswith("__"):
        return "A cell has no file of its own; os.getcwd() is the folder it runs in." if wrong == "__file__" else ""
    if wrong in _STATEMENTS and _is_importable(_STATEMENTS[wrong].split()[1].partition(".")[0]):
        return f"Did you forget: {_STATEMENTS[wrong]}?"
    hints = []
    if nearest := _nearest(wrong, _names_at(error, wrong)):
        hints.append(f"Did you mean: '{nearest}'?")
    statement = f"import {wrong}" if wrong in sys.stdlib_module_names and _is_importable(wrong) else ""
    if statement:
        hints.append(f"{'Or did' if hints else 'Did'} you forget: {statement}?")
    if not hints and wrong in _PROGRAMS and shutil.which(wrong):
        return f"To run the program: !{wrong}"
    return " ".join(hints)


def _names_at(error: NameError, wrong: str) -> list[str]:
    """Names that could have been meant where the error was raised."""
    trace = error.__traceback__
    if trace is None:
        return []
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    names = [*frame.f_locals, *frame.f_globals, *vars(builtins)]
    return [
        name
        for name in dict.fromkeys(names)
        if type(name) is str and name.startswith("_") == wrong.startswith("_") and not is_kernel_name(name)
    ]


def _nearest(wrong: str, names: list[str]) -> str:
    """The most similar name; names that differ in case only come first."""
    if len(wrong) > _MAX_NAME_CHARS or len(names) > _MAX_NAMES:
        return ""
    names = [name for name in names if name != wrong and len(name) <= _MAX_NAME_CHARS]
    same_letters = [name for name in names if name.lower() == wrong.lower()]
    return next(iter(same_letters or difflib.get_close_matches(wrong, names, n=1, cutoff=_MIN_SIMILARITY)), "")


def _hint_for_attribute(error: AttributeError) -> str:
    """Compare with attributes of the class or module, without running code of the object."""
    wrong, owner = error.name, error.obj
    if type(wrong) is not str or not str(error).endswith(f" has no attribute {wrong!r}"):
        return ""
    classes = type.__dict__["__mro__"].__get__(owner if isinstance(owner, type) else type(owner))
    if nearest := _nearest(wrong, _labels(owner, classes)):
        return _did_you_mean(nearest)
    of_classes = [cls.__dict__ for cls in classes if type(owner) is not types.ModuleType]
    namespaces = [_instance_attributes(owner, classes), *of_classes]
    return _did_you_mean(_nearest(wrong, _public(name for place in namespaces for name in place)))


def _instance_attributes(owner: Any, classes: tuple[type, ...]) -> dict[Any, Any]:
    """Attributes of the object itself, unless its class computes them."""
    for cls in classes:
        if "__dict__" in cls.__dict__:
            descriptor = cls.__dict__["__dict__"]
            return descriptor.__get__(owner) if type(descriptor) in _BUILT_IN_DESCRIPTORS else {}
    return {}


def _labels(owner: Any, classes: tuple[type, ...]) -> list[str]:
    """Columns of a pandas data frame or labels of a series, which are attributes, too."""
    pandas = sys.modules.get("pandas")
    for kind, axis in (("DataFrame", "columns"), ("Series", "index")):
        pandas_class = getattr(pandas, kind, None)
        if pandas_class is not None and pandas_class in classes:
            labels = vars(pandas_class)[axis].__get__(owner, pandas_class)
            return [name for name in _public(labels[: _MAX_NAMES + 1]) if name.isidentifier()]
    return []


def _hint_for_import(error: ImportError) -> str:
    match = re.match(r"cannot import name '(\w+)' from ", str(error))
    module = sys.modules.get(str(error.name))
    if match is None or type(module) is not types.ModuleType:
        return ""
    return _did_you_mean(_nearest(match[1], _public(module.__dict__)))


def _public(names: Iterable[Any]) -> list[str]:
    return [name for name in dict.fromkeys(names) if type(name) is str and not name.startswith("_")]


def _did_you_mean(nearest: str) -> str:
    return f"Did you mean: '{nearest}'?" if nearest else ""


def _hint_for_module(error: ModuleNotFoundError) -> str:
    name = error.name
    expected = f"No module named {name!r}"
    if type(name) is not str or str(error) not in (expected, f"{expected}; {_parent(name)!r} is not a package"):
        return ""  # a library raised it, with a message of its own
    package_name = name.partition(".")[0]
    if package_name != name and _is_importable(package_name):
        path = getattr(sys.modules.get(_parent(name)), "__path__", ())
        nearest = _nearest(name.rpartition(".")[2], _modules_in(path))
        return f"Did you mean: '{_parent(name)}.{nearest}'?" if nearest else ""
    if hasattr(builtins, package_name):
        return f"{package_name} needs no import: every cell has it."
    if package_name in sys.stdlib_module_names:
        return "It belongs to the standard library, but this Python was built without it; no package adds it."
    package = distributions.BY_MODULE.get(package_name, "")
    nearest = "" if package else _nearest(package_name, [*sys.stdlib_module_names, *_modules_in(None)])
    if not nearest:
        return pip.advice(package)
    return (
        _did_you_mean(nearest)
        if _is_typo(package_name, nearest)
        else f"{_did_you_mean(nearest)} {pip.advice('', repr(package_name))}"
    )


def _is_typo(wrong: str, nearest: str) -> bool:
    """Whether it is a typing error: one letter changed, missing or added within the name, or two swapped. Any other
    name may be a module that is not installed."""
    if wrong.lower() == nearest.lower():
        return True
    start = _common_prefix_length(wrong, nearest)
    end = _common_prefix_length(wrong[start:][::-1], nearest[start:][::-1])
    extra, missing = wrong[start : len(wrong) - end], nearest[start : len(nearest) - end]
    if not extra or not missing:
        return start > 0 and end > 0 and len(extra + missing) == 1
    return len(extra) == len(missing) == 1 or (len(extra) == 2 and extra == missing[::-1])


def _common_prefix_length(first: str, second: str) -> int:
    """The number of equal characters at the start."""
    differ = (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differ, min(len(first), len(second)))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _modules_in(path: Any) -> list[str]:
    """Public modules in these folders, or in all folders if there are none."""
    modules: Iterable[Any] = pkgutil.iter_modules(path)
    return [module.name for module in modules if not module.name.startswith("_")]


def _is_importable(module: str) -> bool:
    return sys.modules.get(module) is not None or importlib.util.find_spec(module) is not None
