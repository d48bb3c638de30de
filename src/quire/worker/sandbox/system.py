"""Linux system calls for namespaces and mounts."""

from __future__ import annotations

import ctypes
import os
import platform

NEWNS, NEWUSER, NEWPID, NEWNET, NEWIPC = 0x00020000, 0x10000000, 0x20000000, 0x40000000, 0x08000000
NOSUID, NODEV, NOEXEC, READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 2, 4, 8, 1, 32, 4096, 0x4000, 1 << 18
DETACH = 2
_HERE = -100  # AT_FDCWD
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(platform.machine(), 0)
_TREE_CLONE, _TREE_CLOEXEC, _MOVE_EMPTY = 1, os.O_CLOEXEC, 4
_ATTRIBUTES = {"read only": 1, "no setuid": 2, "no devices": 4, "ids": 0x00100000}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _done(result: int, action: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), action)
    return result


def unshare(flags: int) -> None:
    _done(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = (source.encode(), os.fsencode(target), kind.encode() if kind else None)
    _done(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")


def unmount(target: str) -> None:
    _done(_libc.umount2(os.fsencode(target), DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    _done(_libc.syscall(_PIVOT_ROOT, os.fsencode(new), os.fsencode(old)), "pivot_root")


def open_tree(path: str) -> int:
    """A detached copy of the mount at a path, with all mounts below it."""
    flags = _TREE_CLONE | _TREE_CLOEXEC | _RECURSIVE
    return _done(_libc.syscall(_OPEN_TREE, _HERE, os.fsencode(path), flags), f"open_tree {path}")


def set_attributes(tree: int, *, read_only: bool, user_namespace: int = -1) -> None:
    """Ignore setuid and device files of a mount. `user_namespace` maps this user's files to that namespace's user."""
    bits = _ATTRIBUTES["no setuid"] | _ATTRIBUTES["no devices"]
    bits |= _ATTRIBUTES["read only"] if read_only else 0
    bits |= _ATTRIBUTES["ids"] if user_namespace >= 0 else 0
    attributes = (ctypes.c_uint64 * 4)(bits, 0, 0, max(user_namespace, 0))  # set, clear, propagation, user namespace
    size = ctypes.sizeof(attributes)
    _done(_libc.syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH | _RECURSIVE, attributes, size), "mount_setattr")


def attach(tree: int, target: str) -> None:
    """Mount a detached copy."""
    _done(_libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _MOVE_EMPTY), f"mount {target}")
