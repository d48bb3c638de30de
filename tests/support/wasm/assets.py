"""The programs that run in WebAssembly, made and compiled once for all tests."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

from quire.runtimes.wasm.assets import science
from quire.settings import load
from tests.support.external_programs import missing


@functools.cache
def assets_dir() -> Path:
    """The user's own folder: what is made there is named by what it is made of. Of test runners side by side one makes
    it, and the others wait."""
    return _made("plain")


@functools.cache
def science_assets_dir() -> Path:
    """The same, with the Python that has libraries; compiling it takes minutes, once."""
    if not science.installed():
        missing("wasm-science", f"{science.PACKAGE} is not installed")
    return _made("science")


def _made(python: str) -> Path:
    folder = load({}).store.assets_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command, env = [sys.executable, "-m", "quire", "assets"], {**os.environ, "QUIRE_WASM_PYTHON": python}
        made = subprocess.run(command, timeout=900, capture_output=True, text=True, env=env)
    if made.returncode:
        missing("wasm", made.stderr.strip().rpartition("\n")[2])
    return folder
