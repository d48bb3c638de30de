"""Finds IPython and what it needs in a folder of the server's, where this interpreter has no IPython.

The folder is not on `sys.path`: modules of the user's come first wherever they lie, and programs that cells start do
not see it.
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
    """Look for modules in the folder after everywhere else, unless this interpreter has IPython; True where done."""
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
        if path is not None:  # a submodule: Python's own finder looks in its package
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folder], target)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """The backend of matplotlib, which matplotlib looks for by its name; the folder has no metadata of others."""
        name = context.name if context is not None else None
        inside = DistributionFinder.Context(name=name, path=[self._folder])
        return importlib.metadata.MetadataPathFinder.find_distributions(inside)
