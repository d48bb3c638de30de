"""Where images of live guests lie: a folder of this server's own; what a killed one left is removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire import platform_compat


@contextmanager
def shelf(parent: Path) -> Iterator[Path]:
    """A new folder for as long as the block lasts."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in parent.iterdir():
        if _taken(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    held = os.open(folder / "held", os.O_CREAT | os.O_RDWR | platform_compat.BYTES, 0o600)
    try:
        _hold(held)
        yield folder
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)


def images_of(shelf: Path, owner: str) -> Path:
    """The part of it that hosts of this owner see."""
    return shelf / hashlib.sha256(owner.encode()).hexdigest()[:16]


def _taken(folder: Path) -> bool:
    """Take it if no other process holds it: then it may be deleted."""
    try:
        held = os.open(folder / "held", os.O_RDWR | platform_compat.BYTES)
    except OSError:
        return False  # it is just being made, or is not ours
    try:
        return _hold(held)
    finally:
        os.close(held)


def _hold(held: int) -> bool:
    """By a lock that the system lets go of when the process ends, however it ends; not every file system has them."""
    with contextlib.suppress(OSError):
        return platform_compat.try_lock(held)
    return False
