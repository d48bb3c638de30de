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


def show(path: Path) -> None:
    """Have others reach it: a folder they may not enter is covered with one that shows nothing else."""
    door = closed(path)
    if door is None:
        return
    held = os.open(path, os.O_PATH)
    mount("none", str(door), "tmpfs", 0, "mode=755")
    path.mkdir(parents=True, exist_ok=True)
    mount(f"/proc/self/fd/{held}", str(path), None, _BIND | _REC)
    os.close(held)


def main(uid: int, arguments: list[str]) -> None:
    if _libc.unshare(_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, _REC | _PRIVATE)
    for place in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])}:
        show(Path(place))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
