"""Functions that differ between operating systems: file locks, positional reads and writes, folder sync."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

BYTES = getattr(os, "O_BINARY", 0)  # for every os.open: Windows opens files as text by default
IN_USE = (PermissionError,) if sys.platform == "win32" else ()  # raised when a file is deleted or replaced that is open
_NO_NAME = frozenset('<>:"/\\|?*')
_PORTS = (f"{port}{number}" for port in ("COM", "LPT") for number in "0123456789¹²³")
_DEVICES = {"CON", "CONIN$", "CONOUT$", "PRN", "AUX", "NUL", *_PORTS}
_LOCK_POLL_S = 0.01
_MALLOC_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
_DEFAULT_MEMORY_BYTES = 8 << 30  # where the system does not report it


if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 2**31 - 2  # beyond the end of every file that is locked, so that its content can be read

    def try_lock(file: int, *, shared: bool = False) -> bool:
        """Lock the file until it is closed or the process ends; False if it is locked. Locks are never shared here."""
        os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def lock(file: int) -> None:
        while not try_lock(file):
            time.sleep(_LOCK_POLL_S)

else:
    import fcntl

    def try_lock(file: int, *, shared: bool = False) -> bool:
        """Lock the file until it is closed or the process ends; False if it is locked. Shared locks may coexist."""
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
    """Whether this can be a file name on every system. On Windows others mean a drive, stream, pattern or device."""
    base = word.partition(".")[0].rstrip(" ").upper()
    return not (_NO_NAME & set(word) or min(word, default="") < " " or word[-1] in ". " or base in _DEVICES)


def disk_of(file: int) -> tuple[int, int]:
    """Total and free bytes of the disk that an open file is on. On Windows both are unlimited."""
    if not hasattr(os, "fstatvfs"):
        return sys.maxsize, sys.maxsize
    disk = os.fstatvfs(file)
    return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def sync_folder(path: Path) -> None:
    """Write the names in a folder to disk. Windows cannot open folders; there this does nothing."""
    if sys.platform == "win32":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def memory() -> int:
    """Bytes of the machine's memory."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _DEFAULT_MEMORY_BYTES


def use_one_memory_arena() -> None:
    """Use one memory arena: by default each thread has its own, which keeps the memory of its largest request."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):  # musl has none
            libc.mallopt(_MALLOC_ARENA_MAX, 1)
