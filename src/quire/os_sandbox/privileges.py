"""Give up privileges for good: gaining new ones, capabilities, being traced."""

from __future__ import annotations

import ctypes
import errno

from quire.os_sandbox import libc

_SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 4, 24, 38, 47  # of prctl
_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64


def no_new_privs() -> None:
    """Programs started later gain no rights from setuid or file capabilities. Required for Landlock and seccomp."""
    libc.prctl(_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Drop all capabilities of this thread, also for root's programs. Call with one thread.

    The bounding set can be emptied only with CAP_SETPCAP. Without it the set stays, and gives nothing because of
    `no_new_privs`.
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
            if failed.errno in (errno.EINVAL, errno.EPERM):  # after the last capability, or not permitted
                return
            raise


def set_dumpable(allowed: bool) -> None:
    """Whether processes of the same user may trace this one. A newly executed program always allows it.

    If not, its files in /proc belong to root, and it cannot change its own oom_score_adj.
    """
    libc.prctl(_SET_DUMPABLE, int(allowed))
