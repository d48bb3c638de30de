"""Create the IPython shell of a kernel: in the zygote if IPython is preloaded, else when it is first needed."""

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

_preloaded: list[Any] = []  # the shell created in the zygote


class IPythonNotAvailable(ImportError):
    """This interpreter cannot import IPython."""


IPythonNotAvailable.__module__ = "builtins"  # tracebacks show it without a module


def define_get_ipython() -> None:
    """Called in the zygote before preloading: pandas checks at its import whether it is in a notebook."""
    builtins.get_ipython = lambda: types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]


def _import_worker_module(name: str) -> Any:
    """Import a module of the worker late, when its package is no longer importable (see __main__.py)."""
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
    """Called in the zygote after IPython is imported, so that each kernel begins with a shell."""
    if "IPython" in sys.modules and not _preloaded:
        _preloaded.append(_import_worker_module("quire.worker.ipython.shell").create_shell())
        _import_worker_module("quire.worker.ipython.widgets")
        builtins.get_ipython = _preloaded[0].get_ipython  # type: ignore[attr-defined]


def preload_backend() -> None:
    """Called in the zygote after matplotlib is imported; the backend also configures the shell."""
    if _preloaded and importlib.util.find_spec("matplotlib_inline") is not None:
        importlib.import_module("matplotlib_inline.backend_inline")


class IPythonLoader:
    """One per kernel. `configure_shell` is called with the shell once there is one."""

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
        """Return the shell, as get_ipython() does. Raises IPythonNotAvailable."""
        if self.shell is None:
            try:
                importlib.import_module("IPython")  # its import hook creates the shell
                self._create()
            except Exception as error:
                raise IPythonNotAvailable(
                    f"IPython could not be loaded ({type(error).__name__}: {error}). Magics, !commands and display "
                    f"need it. Install it for this notebook's Python: {sys.executable} -m pip install ipython"
                ) from None
        return self.shell

    def load_if_possible(self) -> Any:
        """Return the shell, or None if there is no IPython."""
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
        """Define get_ipython, unless a cell has defined it."""
        builtins.get_ipython = self._get_ipython  # type: ignore[attr-defined]
        self._module.__dict__.setdefault("get_ipython", self._get_ipython)
        self._history.bind_names()
