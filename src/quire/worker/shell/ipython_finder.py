"""Find IPython and its requirements in a folder of the server, if this interpreter has no IPython.

The folder is not on `sys.path`: the user's own modules come first, and programs that cells start do not see it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType


def install(folder: str) -> bool:
    """Search the folder after all others, unless this interpreter has IPython. True if installed."""
    if not folder or importlib.util.find_spec("IPython") is not None:
        return False
    sys.meta_path.append(_Finder(folder))
    return True


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None:  # Python's own finder finds submodules
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folder], target)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """matplotlib looks up its backend here. The folder has no other metadata."""
        name = context.name if context is not None else None
        inside = DistributionFinder.Context(name=name, path=[self._folder])
        return importlib.metadata.MetadataPathFinder.find_distributions(inside)
