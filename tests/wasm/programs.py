"""The programs that run in WebAssembly, made and compiled once for all tests."""

from __future__ import annotations

import fcntl
import functools
import subprocess
import sys
from pathlib import Path

from quire.settings import load
from tests.conftest import missing


@functools.cache
def assets_dir() -> Path:
    """The user's own folder: what is made there is named by what it is made of. Of test runners side by side one makes
    it, and the others wait."""
    folder = load({}).assets_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run([sys.executable, "-m", "quire", "assets"], timeout=600, capture_output=True, text=True)
    if made.returncode:
        missing("wasm", made.stderr.strip().rpartition("\n")[2])
    return folder
