"""What a program of these tests does first, in its own process; loads little, as there are many of them."""

import contextlib
import ctypes
import errno
import os
from typing import Any

from quire.os_sandbox import libc, privileges

NOBODY = 65534
READ_ALL = 1 << 2  # CAP_DAC_READ_SEARCH, without which it cannot reach an interpreter in root's home
KEEP_CAPABILITIES, AMBIENT, RAISE = 8, 47, 2


def become(who: str) -> None:
    """An ordinary user for good, who may still read and start the tests' own interpreter."""
    if who == "root" or os.getuid() != 0:
        return
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    libc.prctl(KEEP_CAPABILITIES, 1)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    with contextlib.suppress(OSError):
        libc.capset(header, (ctypes.c_uint32 * 6)(READ_ALL, READ_ALL, READ_ALL))
        libc.prctl(AMBIENT, RAISE, 2)
    privileges.set_dumpable(True)  # as every program is that did not change its user


def tried(call: Any, *arguments: Any) -> str:
    """The name of the error, or "done"."""
    try:
        call(*arguments)
    except OSError as failed:
        return errno.errorcode.get(failed.errno or 0, str(failed))
    return "done"
