"""A line after a traceback that names the next step. It names only what is there: a name that the code could use, a
module that can be imported, a package that is known to hold the module."""

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
from quire.worker.execution.history import is_ours

_NAMES = 5_000  # that are compared with a wrong one
_CHARS = 60  # of a name that is compared
_BUILT_IN = (types.GetSetDescriptorType, types.MemberDescriptorType)
_ALIKE = 0.7  # of 1, how near a name must be
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
    """In one line what to try next; "" where nothing is known."""
    try:
        if isinstance(error, ModuleNotFoundError):
            return _of_module(error)
        if isinstance(error, ImportError):
            return _of_import(error)
        if isinstance(error, AttributeError):
            return _of_attribute(error)
        if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
            return _of_name(error)
    except Exception:  # a hint is not worth a second error
        pass
    return ""


def _of_name(error: NameError) -> str:
    wrong = error.name
    if type(wrong) is not str or not wrong.isidentifier():
        return ""
    if wrong.startswith("__"):
        return "A cell has no file of its own; os.getcwd() is the folder it runs in." if wrong == "__file__" else ""
    if wrong in _STATEMENTS and _is_there(_STATEMENTS[wrong].split()[1].partition(".")[0]):
        return f"Did you forget: {_STATEMENTS[wrong]}?"
    said = []
    if near := _nearest(wrong, _names_at(error, wrong)):
        said.append(f"Did you mean: '{near}'?")
    statement = f"import {wrong}" if wrong in sys.stdlib_module_names and _is_there(wrong) else ""
    if statement:
        said.append(f"{'Or did' if said else 'Did'} you forget: {statement}?")
    if not said and wrong in _PROGRAMS and shutil.which(wrong):
        return f"To run the program: !{wrong}"
    return " ".join(said)


def _names_at(error: NameError, wrong: str) -> list[str]:
    """What could have been meant, where it was raised."""
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
        if type(name) is str and name.startswith("_") == wrong.startswith("_") and not is_ours(name)
    ]


def _nearest(wrong: str, names: list[str]) -> str:
    """The same in other letters first."""
    if len(wrong) > _CHARS or len(names) > _NAMES:
        return ""
    names = [name for name in names if name != wrong and len(name) <= _CHARS]
    same = [name for name in names if name.lower() == wrong.lower()]
    return next(iter(same or difflib.get_close_matches(wrong, names, n=1, cutoff=_ALIKE)), "")


def _of_attribute(error: AttributeError) -> str:
    """What its class, or the module, has: no code of the object's own is run for it."""
    wrong, owner = error.name, error.obj
    if type(wrong) is not str or not str(error).endswith(f" has no attribute {wrong!r}"):
        return ""
    classes = type.__dict__["__mro__"].__get__(owner if isinstance(owner, type) else type(owner))
    if near := _nearest(wrong, _labels(owner, classes)):
        return _said(near)
    places = [_own(owner, classes), *(each.__dict__ for each in classes if type(owner) is not types.ModuleType)]
    return _said(_nearest(wrong, _public(name for place in places for name in place)))


def _own(owner: Any, classes: tuple[type, ...]) -> dict[Any, Any]:
    """The attributes of the object itself, where no code of its class gives them."""
    for each in classes:
        if "__dict__" in each.__dict__:
            found = each.__dict__["__dict__"]
            return found.__get__(owner) if type(found) in _BUILT_IN else {}
    return {}


def _labels(owner: Any, classes: tuple[type, ...]) -> list[str]:
    """The columns of a table of pandas, or the labels of a series, that are attributes too."""
    pandas = sys.modules.get("pandas")
    for kind, axis in (("DataFrame", "columns"), ("Series", "index")):
        pandas_class = getattr(pandas, kind, None)
        if pandas_class is not None and pandas_class in classes:
            labels = vars(pandas_class)[axis].__get__(owner, pandas_class)
            return [name for name in _public(labels[: _NAMES + 1]) if name.isidentifier()]
    return []


def _of_import(error: ImportError) -> str:
    found = re.match(r"cannot import name '(\w+)' from ", str(error))
    module = sys.modules.get(str(error.name))
    if found is None or type(module) is not types.ModuleType:
        return ""
    return _said(_nearest(found[1], _public(module.__dict__)))


def _public(names: Iterable[Any]) -> list[str]:
    return [name for name in dict.fromkeys(names) if type(name) is str and not name.startswith("_")]


def _said(near: str) -> str:
    return f"Did you mean: '{near}'?" if near else ""


def _of_module(error: ModuleNotFoundError) -> str:
    name = error.name
    plain = f"No module named {name!r}"
    if type(name) is not str or str(error) not in (plain, f"{plain}; {_parent(name)!r} is not a package"):
        return ""  # a library raised it, and says more
    top = name.partition(".")[0]
    if top != name and _is_there(top):
        near = _nearest(name.rpartition(".")[2], _modules_in(getattr(sys.modules.get(_parent(name)), "__path__", ())))
        return f"Did you mean: '{_parent(name)}.{near}'?" if near else ""
    if hasattr(builtins, top):
        return f"{top} needs no import: every cell has it."
    if top in sys.stdlib_module_names:
        return "It belongs to the standard library, but this Python was built without it; no package adds it."
    package = distributions.BY_MODULE.get(top, "")
    near = "" if package else _nearest(top, [*sys.stdlib_module_names, *_modules_in(None)])
    if not near:
        return pip.advice(package)
    return _said(near) if _is_slip(top, near) else f"{_said(near)} {pip.advice('', repr(top))}"


def _is_slip(wrong: str, near: str) -> bool:
    """Whether a finger slipped: within the name one letter is another, missing or too many, or two are swapped. Any
    other name may well be that of a module which is not installed."""
    if wrong.lower() == near.lower():
        return True
    start = _alike(wrong, near)
    end = _alike(wrong[start:][::-1], near[start:][::-1])
    have, want = wrong[start : len(wrong) - end], near[start : len(near) - end]
    if not have or not want:
        return start > 0 and end > 0 and len(have + want) == 1
    return len(have) == len(want) == 1 or (len(have) == 2 and have == want[::-1])


def _alike(one: str, other: str) -> int:
    """How many characters at the start are the same."""
    differ = (at for at, (mine, yours) in enumerate(zip(one, other, strict=False)) if mine != yours)
    return next(differ, min(len(one), len(other)))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _modules_in(path: Any) -> list[str]:
    """Of the modules in these folders, in all where none are named, those that code may import."""
    found: Iterable[Any] = pkgutil.iter_modules(path)
    return [each.name for each in found if not each.name.startswith("_")]


def _is_there(module: str) -> bool:
    return sys.modules.get(module) is not None or importlib.util.find_spec(module) is not None
