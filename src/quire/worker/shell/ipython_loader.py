"""The IPython shell of a kernel: made ahead of all kernels where IPython is preloaded, else when it is first needed."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from quire.worker.execution.history import History
from quire.worker.output.display import Display
from quire.worker.shell import import_hooks

_early: list[Any] = []  # made ahead of all kernels


class NoShell(ImportError):
    """There is no IPython that this interpreter can load."""


NoShell.__module__ = "builtins"  # in tracebacks, without where it is from


def prepare() -> None:
    """In the zygote, before anything else: pandas asks once, when it is imported, whether it is in a notebook."""
    builtins.get_ipython = lambda: types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]


def _ours(name: str) -> Any:
    """A module of the worker's, loaded late: the package it is in is not on any path, see __main__."""
    house, there = types.ModuleType("quire"), sys.modules.get("quire")
    house.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    sys.modules["quire"] = house
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["quire"]
        if there is not None:
            sys.modules["quire"] = there


def make_early() -> None:
    """In the zygote, once IPython is loaded: each kernel then begins with a shell."""
    if "IPython" in sys.modules and not _early:
        _early.append(_ours("quire.worker.ipython.shell").make())
        _ours("quire.worker.ipython.widgets")
        builtins.get_ipython = _early[0].get_ipython  # type: ignore[attr-defined]


def draw_early() -> None:
    """In the zygote, once matplotlib is loaded: its backend for notebooks, which sets up the shell too."""
    if _early and importlib.util.find_spec("matplotlib_inline") is not None:
        importlib.import_module("matplotlib_inline.backend_inline")


class Shells:
    """One for a kernel; `set_up` is told of the shell when there is one."""

    def __init__(
        self, module: types.ModuleType, display: Display, history: History, set_up: Callable[[Any], None]
    ) -> None:
        self._module = module
        self._display = display
        self._history = history
        self._set_up = set_up
        self._get: Callable[[], Any] = self.get
        self.name()
        self.made: Any = None
        if _early:
            self._attach(_early[0])
        else:
            import_hooks.after("IPython", lambda found: self._make())

    def get(self) -> Any:
        """What get_ipython() says. Raises NoShell."""
        if self.made is None:
            try:
                importlib.import_module("IPython")  # which makes the shell, see above
                self._make()
            except Exception as error:
                raise NoShell(
                    f"IPython could not be loaded ({type(error).__name__}: {error}). Magics, !commands and display "
                    f"need it. Install it for this notebook's Python: {sys.executable} -m pip install ipython"
                ) from None
        return self.made

    def get_if_possible(self) -> Any:
        """The same; None where there is none."""
        with contextlib.suppress(NoShell):
            return self.get()

    def _make(self) -> None:
        if self.made is None:
            self._attach(_ours("quire.worker.ipython.shell").make())

    def _attach(self, shell: Any) -> None:
        self.made = shell
        self._get = shell.get_ipython
        self._module.__dict__.pop("get_ipython", None)
        self.name()
        shell.attach(self._module, self._display, self._history)
        _ours("quire.worker.ipython.widgets").begin(self._display)
        self._set_up(shell)

    def name(self) -> None:
        """What cells call it by is there, unless the name is theirs by now."""
        builtins.get_ipython = self._get  # type: ignore[attr-defined]
        self._module.__dict__.setdefault("get_ipython", self._get)
        self._history.put()
