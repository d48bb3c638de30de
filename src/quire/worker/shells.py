"""The shell a cell can ask for: IPython's own where it is installed, our shim where not; made on first need."""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
import types
from collections.abc import Callable
from typing import Any

from quire.worker import imports
from quire.worker.display import Display
from quire.worker.history import History

_early: list[Any] = []  # made ahead of all kernels


def prepare() -> None:
    """In the zygote, before anything else: without IPython the shim is loaded, while there is a way to its modules."""
    builtins.get_ipython = lambda: types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined] # pandas looks once
    if not _has_ipython():
        package = _ours("quire.worker.shim")
        for each in pkgutil.walk_packages(package.__path__, "quire.worker.shim."):
            _ours(each.name)


@functools.cache
def _has_ipython() -> bool:
    """Whether this Python has IPython: looked up once, in the zygote.

    A kernel's process cannot look it up before it enters its root: it is another user by then, for whom the folder
    that Python or its packages are installed in may be closed, as root's home folder is.
    """
    return importlib.util.find_spec("IPython") is not None


def _ours(name: str) -> Any:
    """A module of the worker's, loaded late: the package it is in is not on any path, see __main__."""
    house, there = types.ModuleType("quire"), sys.modules.get("quire")
    house.__path__ = [os.path.dirname(os.path.dirname(__file__))]
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
        elif _has_ipython():
            imports.after("IPython", lambda found: self._real())
        else:
            from quire.worker.shim import finder

            finder.install()

    def get(self) -> Any:
        """What get_ipython() says."""
        if self.made is None:
            self._real() if _has_ipython() else self._shim()
        return self.made

    def _real(self) -> None:
        importlib.import_module("IPython")  # which may come here by itself when it is there
        if self.made is None:
            self._attach(_ours("quire.worker.ipython.shell").make())

    def _shim(self) -> None:
        from quire.worker.shim.shell import Shell

        self.made = Shell(self._module.__dict__, self._display.publish, self._display.clear)
        self._set_up(self.made)

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
