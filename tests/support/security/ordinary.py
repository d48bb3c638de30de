"""Run a program as an ordinary user, where the tests run as root: `python ordinary.py UID PYTHON-ARGUMENTS`.

The interpreter may lie where only root can go. So that the user reaches it, it is shown under its own name in a mount
namespace that is this process's alone; nothing of the machine changes.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path

_NEWNS, _BIND, _REC, _PRIVATE = 0x20000, 4096, 0x4000, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [each.encode() if each else None for each in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def closed(path: Path) -> Path | None:
    """The first folder on the way there that others may not enter."""
    way = [*reversed(path.parents), path]
    return next((each for each in way if not each.stat().st_mode & stat.S_IXOTH), None)


def show(paths: list[Path]) -> None:
    """Have others reach them: a folder they may not enter is covered with one that shows nothing else."""
    hidden = {path: door for path in sorted(paths) if (door := closed(path)) is not None}
    held = {path: os.open(path, os.O_PATH) for path in hidden}  # before a cover hides them
    doors = set(hidden.values())
    for door in doors:
        if doors.isdisjoint(door.parents):  # the cover of a folder above it is enough
            mount("none", str(door), "tmpfs", 0, "mode=755")
    for path, descriptor in held.items():
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", str(path), None, _BIND | _REC)
        os.close(descriptor)


def main(uid: int, arguments: list[str]) -> None:
    if _libc.unshare(_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, _REC | _PRIVATE)
    show([Path(place) for place in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])}])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
