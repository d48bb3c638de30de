"""Modules that add to the shell: `%load_ext name`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from quire.worker.shim.errors import UsageError

_ITS_OWN = ("autoreload", "storemagic", "sympyprinting", "cythonmagic", "rmagic")


class Extensions:
    """What `shell.extension_manager` is."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.loaded: set[str] = set()

    def load_extension(self, module_str: str) -> str | None:
        if module_str.removeprefix("IPython.extensions.") in _ITS_OWN:
            raise UsageError(
                f"The extension {module_str} is a part of IPython, which is not installed here: "
                "%pip install ipython, then reset the notebook."
            )
        if module_str in self.loaded:
            return "already loaded"
        module = importlib.import_module(module_str)
        if not self._call(module, "load_ipython_extension"):
            return "no load function"
        self.loaded.add(module_str)
        return None

    def unload_extension(self, module_str: str) -> str | None:
        if module_str not in self.loaded:
            return "not loaded"
        if not self._call(sys.modules[module_str], "unload_ipython_extension"):
            return "no unload function"
        self.loaded.discard(module_str)
        return None

    def reload_extension(self, module_str: str) -> str | None:
        if module_str in self.loaded and module_str in sys.modules:
            self.unload_extension(module_str)
            importlib.reload(sys.modules[module_str])
        return self.load_extension(module_str)

    def _call(self, module: Any, name: str) -> bool:
        function = getattr(module, name, None)
        if function is not None:
            function(self.shell)
        return function is not None
