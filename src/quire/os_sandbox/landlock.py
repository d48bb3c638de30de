"""Landlock: limit the files that a process and its descendants can access.

Added by each ABI: 2 moving files between folders, 3 truncation, 4 TCP ports, 5 ioctl on devices, 6 signals and
abstract sockets to processes outside. What an older ABI cannot forbid stays allowed, except moving, which ABI 1
always forbids.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Collection, Iterable

from quire.os_sandbox import libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every processor
_VERSION = 1  # asks for the ABI
_PATH_BENEATH, _NET_PORT = 1, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of file rights of each ABI; later ones add none
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # the others apply to folders

_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_TCP_ABI = 4
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
_SCOPES_ABI = 6
_NEWEST = 7


def abi() -> int:
    """The ABI of this system, at most 7, the newest used here; 0 without Landlock."""
    with contextlib.suppress(OSError):
        return min(libc.syscall(_CREATE_RULESET, 0, 0, _VERSION), _NEWEST)
    return 0


def restrict(
    readable: Iterable[str],
    writable: Iterable[str],
    abi: int,
    *,
    ports: Collection[int] | None = None,
    signals: bool = True,
) -> None:
    """Allow access to these folders and files only. Call with one thread and `no_new_privs` set.

    Readable files can be executed, too. In writable folders everything is allowed except creating devices. Missing
    paths are skipped. With `ports`, TCP connects to these ports only and binds to none. With `signals`, this process
    cannot send signals to processes outside; they can send signals to it.
    """
    handled = (1 << _RIGHTS[min(abi, max(_RIGHTS))]) - 1
    ruleset = _create(handled, abi, ports, signals)
    try:
        for path in readable:
            _allow(ruleset, path, handled & _READ)
        for path in writable:
            _allow(ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK))
        for port in ports or ():
            libc.syscall(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port), 0)
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _create(handled: int, abi: int, ports: Collection[int] | None, signals: bool) -> int:
    """A ruleset for all handled rights. Older systems accept the longer structure if the rest is zero."""
    if ports is not None and abi < _TCP_ABI:
        raise OSError(f"This system's Landlock (ABI {abi}) cannot limit TCP ports, which takes ABI {_TCP_ABI}.")
    tcp = 0 if ports is None else _BIND_TCP | _CONNECT_TCP
    scopes = 0
    if abi >= _SCOPES_ABI:
        scopes = _ABSTRACT_SOCKETS | (_SIGNALS if signals else 0)
    asked = struct.pack("=QQQ", handled, tcp, scopes)
    return libc.syscall(_CREATE_RULESET, asked, len(asked), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # missing, or not accessible anyway
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
