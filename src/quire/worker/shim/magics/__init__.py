"""The magics people use, without IPython; each module enters its own into the registry."""

from __future__ import annotations

import importlib

_MODULES = ("figures", "files", "folders", "help", "names", "others", "showing", "timing")


def load() -> None:
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
