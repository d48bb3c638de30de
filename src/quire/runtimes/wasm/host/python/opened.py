"""How many descriptors a guest holds: its own count can be talked out of it, and they are this whole process's."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from quire.runtimes.wasm.host.guest import Place

_MANY = 256  # descriptors of this process; with fewer open, no guest has too many
_OFTEN = 0.1  # seconds between two looks
_LISTED = Path("/proc/self/fd")


def raise_limit() -> None:
    """Have as many as the system lets this process have: guests are ended for far fewer."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Opened:
    """Of one guest, which is blamed for all that are open in its folders."""

    def __init__(self, place: Place, most: int) -> None:
        self._folders = tuple(os.path.realpath(each) for each in (place.workspace, *(path for path, _ in place.mounts)))
        self._most = 2 * most + 16 + len(self._folders)  # twice: what is closed at a checkpoint is opened beside it
        self._looked = 0.0

    def too_many(self, *, now: bool = False) -> bool:
        """Whether it holds more than it could have by its own count; looked at now and then, unless `now`."""
        if not now and time.monotonic() - self._looked < _OFTEN:
            return False
        self._looked = time.monotonic()
        try:
            return _lowest_free() >= _MANY and self._held() > self._most
        except OSError:
            return True  # no descriptor is left, and this guest is the one that runs

    def _held(self) -> int:
        held = 0
        for each in _LISTED.iterdir() if _LISTED.is_dir() else ():
            with contextlib.suppress(OSError):  # closed since
                path = str(each.readlink())
                held += any(path == folder or path.startswith(f"{folder}/") for folder in self._folders)
        return held


def _lowest_free() -> int:
    number = os.dup(0)
    os.close(number)
    return number
