"""Objects that variables share with modules of the user: `from settings import OPTIONS`, then `settings.OPTIONS`.

A new process imports the module again, which creates new objects. They are replaced by those of the namespace.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.modules import importable, is_library

SEGMENT = "<shared with modules>"  # not a valid variable name
_IGNORED_TYPES = (int, float, complex, bool, str, bytes, type(None), type, types.ModuleType, types.FunctionType)
_IGNORED_MODULES = ("__main__", "__mp_main__", "quire")


class SharedObjects:
    """Objects in modules of the user, with their reference counts before a dump."""

    def __init__(self) -> None:
        self._found = [
            (module_name, name, value)
            for module_name, module in _modules()
            for name, value in list(vars(module).items())
            if type(name) is str and not name.startswith("__") and type(value) not in _IGNORED_TYPES
        ]
        self._before = self._references()

    def _references(self) -> list[int]:
        return [sys.getrefcount(entry[2]) for entry in self._found]

    def written(self) -> list[tuple[str, str, Any]]:
        """(module, name, object) of those that the pickler's memo refers to by now."""
        counts = zip(self._found, self._before, self._references(), strict=True)
        return [entry for entry, before, after in counts if after > before]


def _modules() -> list[tuple[str, types.ModuleType]]:
    return [
        (name, module)
        for name, module in list(sys.modules.items())
        if type(module) is types.ModuleType
        and name.partition(".")[0] not in _IGNORED_MODULES
        and not is_library(module)
        and importable(module)
    ]


def restore_shared(found: list[tuple[str, str, Any]]) -> None:
    """Set the objects in their modules, as far as those can be imported."""
    for module_name, name, value in found if type(found) is list else ():
        if not tombstones.is_tombstone(value):
            with contextlib.suppress(Exception, SystemExit):
                vars(importlib.import_module(module_name))[name] = value
