"""The programs that run in WebAssembly, made and compiled once for all tests."""

from __future__ import annotations

import functools
from pathlib import Path

from quire.settings import load


@functools.cache
def assets_dir() -> Path:
    """The user's own: what is made there is named by what it is made of."""
    return load({}).assets_dir
