"""Rights a process gives up for good: gaining new ones, capabilities, being looked into by its own user."""

from __future__ import annotations

import ctypes
import errno

from quire.os_sandbox import libc

_SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 4, 24, 38, 47  # prctl's numbers
_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64


def no_new_privs() -> None:
    """No program started from here on gains rights by setuid or file capabilities. Landlock and seccomp need it."""
    libc.prctl(_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Every capability of this thread, and that root's programs get them back. Call with one thread.

    Only who holds CAP_SETPCAP may empty the bounding set; who does not is left with it, and with
    `no_new_privs` it gives nothing.
    """
    _empty_bounding_set()
    libc.prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _empty_bounding_set() -> None:
    for number in range(_MOST_CAPABILITIES):
        try:
            libc.prctl(_CAPBSET_DROP, number)
        except OSError as failed:
            if failed.errno in (errno.EINVAL, errno.EPERM):  # past the system's last one, or not ours to drop
                return
            raise


def set_dumpable(allowed: bool) -> None:
    """Whether processes of the same user may read this one's memory and trace it. A new program is dumpable again.

    While it is not, its files in /proc are root's: it cannot change its own oom_score_adj.
    """
    libc.prctl(_SET_DUMPABLE, int(allowed))
