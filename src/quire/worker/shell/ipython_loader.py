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

_preloaded: list[Any] = []  # made ahead of all kernels


class IPythonNotAvailable(ImportError):
    """There is no IPython that this interpreter can load."""


IPythonNotAvailable.__module__ = "builtins"  # in tracebacks, without where it is from


def define_get_ipython() -> None:
    """In the zygote, before anything else: pandas asks once, when it is imported, whether it is in a notebook."""
    builtins.get_ipython = lambda: types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]


def _import_worker_module(name: str) -> Any:
    """A module of the worker's, loaded late: the package it is in is not on any path, see __main__."""
    package, previous = types.ModuleType("quire"), sys.modules.get("quire")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    sys.modules["quire"] = package
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["quire"]
        if previous is not None:
            sys.modules["quire"] = previous


def preload_shell() -> None:
    """In the zygote, once IPython is loaded: each kernel then begins with a shell."""
    if "IPython" in sys.modules and not _preloaded:
        _preloaded.append(_import_worker_module("quire.worker.ipython.shell").create_shell())
        _import_worker_module("quire.worker.ipython.widgets")
        builtins.get_ipython = _preloaded[0].get_ipython  # type: ignore[attr-defined]


def preload_backend() -> None:
    """In the zygote, once matplotlib is loaded: its backend for notebooks, which sets up the shell too."""
    if _preloaded and importlib.util.find_spec("matplotlib_inline") is not None:
        importlib.import_module("matplotlib_inline.backend_inline")


class IPythonLoader:
    """One for a kernel; `set_up` is told of the shell when there is one."""

    def __init__(
        self, module: types.ModuleType, display: Display, history: History, configure_shell: Callable[[Any], None]
    ) -> None:
        self._module = module
        self._display = display
        self._history = history
        self._configure_shell = configure_shell
        self._get_ipython: Callable[[], Any] = self.load
        self.bind_names()
        self.shell: Any = None
        if _preloaded:
            self._attach(_preloaded[0])
        else:
            import_hooks.after_import("IPython", lambda module: self._create())

    def load(self) -> Any:
        """What get_ipython() says. Raises IPythonNotAvailable."""
        if self.shell is None:
            try:
                importlib.import_module("IPython")  # which makes the shell, see above
                self._create()
            except Exception as error:
                raise IPythonNotAvailable(
                    f"IPython could not be loaded ({type(error).__name__}: {error}). Magics, !commands and display "
                    f"need it. Install it for this notebook's Python: {sys.executable} -m pip install ipython"
                ) from None
        return self.shell

    def load_if_possible(self) -> Any:
        """The same; None where there is none."""
        with contextlib.suppress(IPythonNotAvailable):
            return self.load()

    def _create(self) -> None:
        if self.shell is None:
            self._attach(_import_worker_module("quire.worker.ipython.shell").create_shell())

    def _attach(self, shell: Any) -> None:
        self.shell = shell
        self._get_ipython = shell.get_ipython
        self._module.__dict__.pop("get_ipython", None)
        self.bind_names()
        shell.attach(self._module, self._display, self._history)
        _import_worker_module("quire.worker.ipython.widgets").install(self._display)
        self._configure_shell(shell)

    def bind_names(self) -> None:
        """What cells call it by is there, unless the name is theirs by now."""
        builtins.get_ipython = self._get_ipython  # type: ignore[attr-defined]
        self._module.__dict__.setdefault("get_ipython", self._get_ipython)
        self._history.bind_names()
