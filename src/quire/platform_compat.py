"""Where operating systems differ in what all of Quire needs: locks, reading and writing at a place, synced folders."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

BYTES = getattr(os, "O_BINARY", 0)  # for every os.open: Windows would take a file for text otherwise
IN_USE = (PermissionError,) if sys.platform == "win32" else ()  # raised for a file to be taken away that is open
_NO_NAME = frozenset('<>:"/\\|?*')
_PORTS = (f"{port}{number}" for port in ("COM", "LPT") for number in "0123456789¹²³")
_DEVICES = {"CON", "CONIN$", "CONOUT$", "PRN", "AUX", "NUL", *_PORTS}
_PAUSE = 0.01  # seconds between two looks at a lock
_ASSUMED = 8 << 30  # bytes of memory, where the system does not say


if sys.platform == "win32":
    import msvcrt

    _FAR = 2**31 - 2  # a byte behind what is in any file that is locked: others may read all there is

    def try_lock(file: int, *, shared: bool = False) -> bool:
        """Whether it is ours now, until the file is closed, however that comes. Here nobody shares it."""
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def lock(file: int) -> None:
        while not try_lock(file):
            time.sleep(_PAUSE)

else:
    import fcntl

    def try_lock(file: int, *, shared: bool = False) -> bool:
        """Whether it is ours now, until the file is closed, however that comes; `shared` with others who say so."""
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)


_seeking = threading.Lock()


def _pread(file: int, length: int, offset: int, /) -> bytes:
    with _seeking:
        os.lseek(file, offset, os.SEEK_SET)
        return os.read(file, length)


def _pwrite(file: int, data: bytes | memoryview, offset: int, /) -> int:
    with _seeking:
        os.lseek(file, offset, os.SEEK_SET)
        return os.write(file, data)


pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _pread)
pwrite: Callable[[int, bytes | memoryview, int], int] = getattr(os, "pwrite", _pwrite)


def is_name(word: str) -> bool:
    """Whether it can be a file's name everywhere; on Windows others mean a drive, a stream, a pattern or a device."""
    base = word.partition(".")[0].rstrip(" ").upper()
    return not (_NO_NAME & set(word) or min(word, default="") < " " or word[-1] in ". " or base in _DEVICES)


def disk_of(file: int) -> tuple[int, int]:
    """Bytes of the disk an open file is on, in all and free ones. Windows does not say: there is always room."""
    if not hasattr(os, "fstatvfs"):
        return sys.maxsize, sys.maxsize
    disk = os.fstatvfs(file)
    return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def sync_folder(path: Path) -> None:
    """So that the names in it are on disk. Windows opens no folder, and keeps names in its own order."""
    if sys.platform == "win32":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def memory() -> int:
    """Bytes of the machine's."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _ASSUMED
