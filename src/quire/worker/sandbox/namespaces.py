"""Fork a process into its own user, process, network, IPC and mount namespaces.

This takes one call where Linux allows it. Otherwise it takes two forks, since a process namespace begins with a
child: the intermediate process ends, and its child becomes this process's child.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import struct
from dataclasses import dataclass

from quire.worker.processes import process_tree
from quire.worker.sandbox import system

_FIRST_UID = 0x4000_0000  # of user ids for kernels, far beyond those of any system
_INNER = system.NEWPID | system.NEWNS | system.NEWNET | system.NEWIPC
_SIOCSIFFLAGS, _UP = 0x8914, 0x41
_BACKLOG = 64


@dataclass(frozen=True)
class IsolatedProcess:
    """The isolated process, for its parent."""

    pid: int
    user_namespace: int  # descriptor


def fork_isolated(*, own_uid: bool) -> IsolatedProcess | None:
    """Fork an isolated process. Returns None in it. `own_uid`, for root only, gives it a user id of its own. Raises
    OSError."""
    uid, gid = os.getuid(), os.getgid()
    mapped_read, mapped_write = os.pipe2(os.O_CLOEXEC)
    pid = process_tree.fork_into(system.NEWUSER | _INNER)
    if pid == 0:
        os.close(mapped_write)
        if not os.read(mapped_read, 1):
            os._exit(1)
        os.close(mapped_read)
        if own_uid:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        return None
    os.close(mapped_read)
    try:
        return _fork_twice(own_uid) if pid is None else _map_and_release(pid, mapped_write, own_uid)
    finally:
        os.close(mapped_write)


def _map_and_release(pid: int, mapped_write: int, own_uid: bool) -> IsolatedProcess:
    user_namespace = -1
    try:
        user_namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        _map_ids(pid, _FIRST_UID + pid if own_uid else None)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if user_namespace >= 0:
            os.close(user_namespace)
        raise
    os.write(mapped_write, b"1")
    return IsolatedProcess(pid, user_namespace)


def _fork_twice(own_uid: bool) -> IsolatedProcess | None:
    result_read, result_write = os.pipe2(os.O_CLOEXEC)
    mapped_read, mapped_write = os.pipe2(os.O_CLOEXEC)
    intermediate = os.fork()
    if intermediate == 0:
        os.close(result_read)
        os.close(mapped_write)
        if _run_intermediate(result_write, mapped_read, own_uid):
            os.close(result_write)
            os.close(mapped_read)
            return None
        os._exit(0)
    os.close(result_write)
    os.close(mapped_read)
    user_namespace = -1
    try:
        _expect(os.read(result_read, 200), "user")
        user_namespace = os.open(f"/proc/{intermediate}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        _map_ids(intermediate, _FIRST_UID + intermediate if own_uid else None)
        os.write(mapped_write, b"1")
        pid = int(_expect(os.read(result_read, 200), "pid"))
    except BaseException:
        if user_namespace >= 0:
            os.close(user_namespace)
        raise
    finally:
        os.close(result_read)
        os.close(mapped_write)
        os.waitpid(intermediate, 0)  # after this, its child is ours
    return IsolatedProcess(pid, user_namespace)


def _expect(answer: bytes, expected: str) -> str:
    key, _, value = answer.decode("utf-8", "replace").partition(" ")
    if key != expected:
        raise OSError(value or "an isolated process could not be created")
    return value


def _run_intermediate(result_write: int, mapped_read: int, own_uid: bool) -> bool:
    """True in the isolated process."""
    uid, gid = os.getuid(), os.getgid()
    try:
        if own_uid:
            os.setgroups([])
        _own_namespace()
        os.write(result_write, b"user")
        if not os.read(mapped_read, 1):
            return False
        if own_uid:
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        system.unshare(_INNER)
        pid = os.fork()
    except OSError as error:
        os.write(result_write, f"failed {error}".encode()[:200])
        return False
    if pid == 0:
        return True
    os.write(result_write, f"pid {pid}".encode())
    return False


def _own_namespace() -> None:
    try:
        system.unshare(system.NEWUSER)
    except OSError as error:
        reasons = {
            errno.ENOSPC: "no more user namespaces may be made here (sysctl user.max_user_namespaces)",
            errno.EPERM: "this system lets this user make no user namespaces, as in many containers",
        }
        raise OSError(reasons.get(error.errno or 0, str(error))) from error


def _map_ids(pid: int, host: int | None) -> None:
    """Map the user and group to themselves inside, and outside to themselves or to `host`."""
    if host is None:  # required of users without the right to map others
        _write(f"/proc/{pid}/setgroups", "deny")
    for name, inside in (("gid_map", os.getgid()), ("uid_map", os.getuid())):
        _write(f"/proc/{pid}/{name}", f"{inside} {inside if host is None else host} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def set_up() -> tuple[int, socket.socket]:
    """Set up /proc and a loopback in the first process of the namespaces. Returns port and listening socket of the
    proxy."""
    system.mount("none", "/", None, system.RECURSIVE | system.PRIVATE)
    system.mount("proc", "/proc", "proc", system.NOSUID | system.NODEV | system.NOEXEC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    listener.bind(("127.0.0.1", 0))
    listener.listen(_BACKLOG)
    return listener.getsockname()[1], listener
