"""A process apart: the first of its own user, process, network and mount namespaces, and what it needs there.

It is forked into them at once. Where this system has no way to, it takes two steps, since a namespace of processes
begins with a child: the process between writes nothing and ends, and its child is this process's, which adopts orphans.
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

_FIRST_UID = 0x4000_0000  # of those we give out: far beyond what any system gives its users
_INNER = system.NEWPID | system.NEWNS | system.NEWNET | system.NEWIPC
_SIOCSIFFLAGS, _UP = 0x8914, 0x41
_BACKLOG = 64


@dataclass(frozen=True)
class Apart:
    """What the one who forked it has."""

    pid: int
    ids: int  # descriptor of its user namespace


def fork(*, own_uid: bool) -> Apart | None:
    """Fork a process apart; None in it. With `own_uid`, for root, it is a user that nobody else is. Raises OSError."""
    uid, gid = os.getuid(), os.getgid()
    mapped, let_go = os.pipe2(os.O_CLOEXEC)
    pid = process_tree.fork_into(system.NEWUSER | _INNER)
    if pid == 0:
        os.close(let_go)
        if not os.read(mapped, 1):
            os._exit(1)
        os.close(mapped)
        if own_uid:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        return None
    os.close(mapped)
    try:
        return _fork_twice(own_uid) if pid is None else _made(pid, let_go, own_uid)
    finally:
        os.close(let_go)


def _made(pid: int, let_go: int, own_uid: bool) -> Apart:
    ids = -1
    try:
        ids = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        _map_ids(pid, _FIRST_UID + pid if own_uid else None)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if ids >= 0:
            os.close(ids)
        raise
    os.write(let_go, b"1")
    return Apart(pid, ids)


def _fork_twice(own_uid: bool) -> Apart | None:
    told, tell = os.pipe2(os.O_CLOEXEC)
    mapped, let_go = os.pipe2(os.O_CLOEXEC)
    between = os.fork()
    if between == 0:
        os.close(told)
        os.close(let_go)
        if _between(tell, mapped, own_uid):
            os.close(tell)
            os.close(mapped)
            return None
        os._exit(0)
    os.close(tell)
    os.close(mapped)
    ids = -1
    try:
        _expect(os.read(told, 200), "user")
        ids = os.open(f"/proc/{between}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        _map_ids(between, _FIRST_UID + between if own_uid else None)
        os.write(let_go, b"1")
        pid = int(_expect(os.read(told, 200), "pid"))
    except BaseException:
        if ids >= 0:
            os.close(ids)
        raise
    finally:
        os.close(told)
        os.close(let_go)
        os.waitpid(between, 0)  # its child is ours when it is gone
    return Apart(pid, ids)


def _expect(said: bytes, what: str) -> str:
    word, _, rest = said.decode("utf-8", "replace").partition(" ")
    if word != what:
        raise OSError(rest or "a process apart could not be made")
    return rest


def _between(tell: int, mapped: int, own_uid: bool) -> bool:
    """True in the process apart."""
    uid, gid = os.getuid(), os.getgid()
    try:
        if own_uid:
            os.setgroups([])
        _own_namespace()
        os.write(tell, b"user")
        if not os.read(mapped, 1):
            return False
        if own_uid:
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        system.unshare(_INNER)
        pid = os.fork()
    except OSError as error:
        os.write(tell, f"failed {error}".encode()[:200])
        return False
    if pid == 0:
        return True
    os.write(tell, f"pid {pid}".encode())
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
    """Inside it is who it was; outside it is that user too, or `host`."""
    if host is None:  # which the system asks of whoever may not map others
        _write(f"/proc/{pid}/setgroups", "deny")
    for name, own in (("gid_map", os.getgid()), ("uid_map", os.getuid())):
        _write(f"/proc/{pid}/{name}", f"{own} {own if host is None else host} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def settle() -> tuple[int, socket.socket]:
    """The first process's own view of itself: its processes, and a loopback of its own with one door to the server,
    which listens there for what code asks of the network; its port and the door."""
    system.mount("none", "/", None, system.RECURSIVE | system.PRIVATE)
    system.mount("proc", "/proc", "proc", system.NOSUID | system.NODEV | system.NOEXEC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    door.bind(("127.0.0.1", 0))
    door.listen(_BACKLOG)
    return door.getsockname()[1], door
