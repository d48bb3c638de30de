"""The shell of a guest's cells, which stands for IPython's."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

from quire.runtimes.wasm.guest.shell import Shell
from quire.worker.execution.history import History
from quire.worker.output.display import Display


class IPythonLoader:
    """The one of a kernel; `set_up` is told of it."""

    def __init__(
        self, module: types.ModuleType, display: Display, history: History, configure_shell: Callable[[Any], None]
    ) -> None:
        self._module = module
        self._history = history
        self.shell = Shell(module.__dict__, display)
        self._get_ipython = self.load  # one object, which cells may compare
        self.bind_names()
        configure_shell(self.shell)

    def load(self) -> Shell:
        """What get_ipython() says."""
        return self.shell

    load_if_possible = load

    def bind_names(self) -> None:
        """Put back the names that cells know it by, unless a cell has given them to something else."""
        builtins.get_ipython = self._get_ipython  # type: ignore[attr-defined]
        self._module.__dict__.setdefault("get_ipython", self._get_ipython)
        self._history.bind_names()
