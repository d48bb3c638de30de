"""Call Linux system calls that Python has no function for. Errors raise OSError."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(number: int, *arguments: Any) -> int:
    """Call by number. Integers are passed as 64 bits, other values as ctypes does."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_whole, arguments)))


def prctl(option: int, *arguments: int) -> int:
    padded = (*arguments, 0, 0, 0, 0)[:4]  # newer options require zeros for unused arguments
    return _checked(_libc.prctl(option, *map(ctypes.c_ulong, padded)))


def capset(header: Any, data: Any) -> None:
    _checked(_libc.capset(header, data))


def _whole(argument: Any) -> Any:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
