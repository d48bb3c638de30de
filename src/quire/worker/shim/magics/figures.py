"""`%matplotlib`, `%pylab` and `%config`: figures are inline here, in the formats a notebook asks for."""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any

from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import line
from quire.worker.shim.settings import inline

_HERE = ("", "inline", "agg", "auto")


@line("matplotlib")
def matplotlib(shell: Any, line: str) -> None:
    """Figures are shown inline, whatever backend is named."""
    words = line.split()
    if "-l" in words or "--list" in words:
        print("Available matplotlib backends: ['inline']")
    elif words and words[0] not in _HERE:
        sys.stderr.write(f"%matplotlib {words[0]}: there is no window here; figures are shown inline.\n")


@line("pylab")
def pylab(shell: Any, line: str) -> None:
    """numpy and matplotlib into the namespace."""
    shell.user_ns.update(pylab_names("--no-import-all" not in line.split()))


def pylab_names(import_all: bool) -> dict[str, Any]:
    numpy = importlib.import_module("numpy")
    pyplot = importlib.import_module("matplotlib.pyplot")
    names: dict[str, Any] = {}
    if import_all:
        everything = vars(importlib.import_module("matplotlib.pylab"))
        names.update({name: value for name, value in everything.items() if not name.startswith("_")})
    return {**names, "np": numpy, "numpy": numpy, "plt": pyplot, "pyplot": pyplot}


@line("config", raw=True)
def config(shell: Any, line: str) -> None:
    """Set `Class.trait = value`: the figures' formats, and how values are shown."""
    text = line.strip()
    if not text:
        print("Available objects for config:\n    InlineBackend\n    InteractiveShell")
        return
    if "=" not in text:
        _say(shell, text)
        return
    target, _, value = text.partition("=")
    owner, _, name = target.strip().partition(".")
    _set(shell, owner.strip(), name.strip(), _value(shell, value.strip()))


def _value(shell: Any, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    try:
        return shell.ev(text)
    except Exception as error:
        raise UsageError(f"%config: {text} has no value ({type(error).__name__}: {error}).") from None


def _set(shell: Any, owner: str, name: str, value: Any) -> None:
    shell.config.setdefault(owner, {})[name] = value
    if owner == "InteractiveShell":
        setattr(shell, name, value)
    if owner != "InlineBackend":
        return
    if name in ("figure_format", "figure_formats"):
        inline.choose(*([value] if isinstance(value, str) else sorted(value)))
    elif name == "print_figure_kwargs":
        inline.print_options = dict(value)
    elif name == "close_figures":
        inline.close_figures = bool(value)
    elif name == "rc":
        importlib.import_module("matplotlib").rcParams.update(value)


def _say(shell: Any, text: str) -> None:
    owner, _, name = text.partition(".")
    known: dict[str, Any] = dict(shell.config.get(owner, {}))
    if owner == "InlineBackend":
        known = {"figure_formats": set(inline.formats), "print_figure_kwargs": inline.print_options, **known}
    if not name:
        print("\n".join(f"{owner}.{key} = {value!r}" for key, value in known.items()) or f"{owner}: nothing is set")
    elif name in known:
        print(repr(known[name]))
    else:
        raise UsageError(f"%config: {text} is not set.")
