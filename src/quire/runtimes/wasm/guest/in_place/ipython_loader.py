"""The shell of a guest's cells, in place of IPython's."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

from quire.runtimes.wasm.guest.shell import Shell
from quire.worker.execution.history import History
from quire.worker.output.display import Display


class IPythonLoader:
    """One per kernel. `configure_shell` is called with the shell."""

    def __init__(
        self, module: types.ModuleType, display: Display, history: History, configure_shell: Callable[[Any], None]
    ) -> None:
        self._module = module
        self._history = history
        self.shell = Shell(module.__dict__, display)
        self._get_ipython = self.load  # always the same object, since cells may compare it
        self.bind_names()
        configure_shell(self.shell)

    def load(self) -> Shell:
        """Return the shell, as get_ipython() does."""
        return self.shell

    load_if_possible = load

    def bind_names(self) -> None:
        """Define get_ipython, unless a cell has defined it."""
        builtins.get_ipython = self._get_ipython  # type: ignore[attr-defined]
        self._module.__dict__.setdefault("get_ipython", self._get_ipython)
        self._history.bind_names()
