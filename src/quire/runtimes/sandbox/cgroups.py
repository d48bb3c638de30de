"""A control group for each kernel. It limits memory and processes, and gives the kernel a fair share of the processors,
however many processes it has. All kernels together weigh as much as one other program, so that the server answers while
kernels compute.

Both versions of control groups work: one tree (v2), or one tree for each resource (v1).

A server locks its groups while it runs, and removes groups that no server has locked. Process ids would not do: those
of a server in another container mean nothing here, and process 1 always exists.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from quire import platform_compat
from quire.core.errors import OperationFailed

_PREFIX = "quire_"
_FILES = {1: ("memory.limit_in_bytes", "pids.max", "cgroup.procs"), 2: ("memory.max", "pids.max", "cgroup.procs")}
_EXTRA_PROCESSES = 500  # beyond the notebook's limit: checkpoints and supervisor
_CLOSE_S = 2.0  # to wait for killed processes to leave their group
_CLOSE_PAUSE_S = 0.01
_LOCK_TRIES = 100
_LOCK_PAUSE_S = 0.001  # a starting server locks a group while it checks its owner


@dataclass(frozen=True)
class Cgroup:
    folders: tuple[tuple[Path, int], ...]  # each with the version of its tree

    def create(self) -> None:
        for folder, _ in self.folders:
            folder.mkdir(exist_ok=True)

    def limit(self, *, memory: int, processes: int) -> None:
        """Set the limits; 0 is no limit."""
        for folder, kind in self.folders:
            memory_file, processes_file, _ = _FILES[kind]
            for name, value in (
                (memory_file, memory),
                (processes_file, processes + _EXTRA_PROCESSES if processes else 0),
            ):
                if (folder / name).exists():
                    _write(
                        folder / name, str(value) if value else ("max" if kind == 2 or name == processes_file else "-1")
                    )

    def add(self, pid: int) -> None:
        """Add a process and all that it will start."""
        for folder, kind in self.folders:
            _write(folder / _FILES[kind][2], str(pid))

    def remove(self) -> bool:
        """Remove the group; False while a process is in it."""
        removed = True
        for folder, _ in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                removed = False
        return removed


class Cgroups:
    """The server's own group in each tree, and below it one for each kernel. Empty groups that another program removed
    are created again."""

    def __init__(self, places: list[tuple[Path, int]], name: str) -> None:
        """`places` are the parent folders of the server's groups, with the version of their tree. Raises OSError."""
        self._own: list[_ServerGroup] = []
        self._name = name
        self._number = 0
        self._in_use: set[Cgroup] = set()
        self._undeleted: list[Cgroup] = []  # still with a process in it
        self._lock = threading.Lock()
        try:
            for parent, kind in places:
                self._own.append(_ServerGroup.create(parent / name, kind))
        except OSError:
            self.close()
            raise

    @classmethod
    def open(cls) -> Cgroups | str:
        """The groups of this process, or why there are none."""
        try:
            trees = _trees(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
            if not trees:
                return "no control groups for memory and processes are mounted"
            places = [(_parent_folder(folder, kind), kind) for folder, kind in trees]
            for parent, _ in places:
                _remove_abandoned(parent)
            return cls(places, f"{_PREFIX}{os.getpid()}_{secrets.token_hex(4)}")  # one process may have several servers
        except OSError as error:
            return f"its control group cannot be divided ({error.strerror}: {error.filename})"

    def create_group(self) -> Cgroup:
        self._number += 1
        self._undeleted = [group for group in self._undeleted if not group.remove()]
        group = Cgroup(tuple((own.folder / f"kernel-{self._number}", own.kind) for own in self._own))
        try:
            with self._lock:
                self._in_use.add(group)
                self._create(group)
        except OSError as error:
            self.release(group)
            raise OperationFailed(f"A kernel could not be given a control group: {error}.") from error
        return group

    def add(self, group: Cgroup, pid: int) -> None:
        """Add a process and all that it will start. Raises OSError."""
        try:
            group.add(pid)
        except FileNotFoundError:
            with self._lock:
                if group not in self._in_use:
                    raise  # it was released meanwhile
                self._create(group)
            group.add(pid)

    def _create(self, group: Cgroup) -> None:
        try:
            group.create()
        except FileNotFoundError:
            for index, own in enumerate(self._own):
                if not own.exists():
                    self._own[index] = _ServerGroup.create(own.folder, own.kind)
                    os.close(own.lock)
            group.create()

    def release(self, group: Cgroup) -> None:
        with self._lock:
            self._in_use.discard(group)
        if not group.remove():
            self._undeleted.append(group)

    def close(self) -> None:
        """Remove all groups; wait a moment for killed processes to leave them."""
        with self._lock:
            remaining = [*self._undeleted, *self._in_use]
            self._in_use.clear()
        deadline = time.monotonic() + _CLOSE_S
        while (remaining := [group for group in remaining if not group.remove()]) and time.monotonic() < deadline:
            time.sleep(_CLOSE_PAUSE_S)
        for own in self._own:
            with contextlib.suppress(OSError):
                own.folder.rmdir()
            os.close(own.lock)
        self._own = []


@dataclass(frozen=True)
class _ServerGroup:
    """The group for all kernels of this server, in one tree."""

    folder: Path
    kind: int
    lock: int  # descriptor of the folder; other servers remove groups that are not locked

    @classmethod
    def create(cls, folder: Path, kind: int) -> _ServerGroup:
        group = cls(folder, kind, _locked(folder))
        try:
            if kind == 2:
                available = (folder / "cgroup.controllers").read_text().split()
                enabled = [f"+{name}" for name in ("memory", "pids", "cpu") if name in available]
                _write(folder / "cgroup.subtree_control", " ".join(enabled))
        except OSError:
            os.close(group.lock)
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise
        return group

    def exists(self) -> bool:
        return _is_open_folder(self.folder, self.lock)


def _trees(own: str, mounts: str) -> list[tuple[Path, int]]:
    """This process's group in each tree for memory or processes, then in the tree for processors."""
    places: dict[str, tuple[Path, str]] = {}  # mount point of each tree, and the group mounted there
    for line in mounts.splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, inner, where = mount.split(" ")[:5]
            names = [""] if kind == "cgroup2" else options.split(" ")[-1].split(",")
            places |= {name: (Path(where), inner) for name in names}
    counting: list[tuple[Path, int]] = []
    sharing: list[tuple[Path, int]] = []
    for line in own.splitlines():
        _, counted, path = line.split(":", 2)
        for name in counted.split(","):
            if name in ("memory", "pids", "cpu", "") and name in places:
                mounted, shown = places[name]
                folder = mounted / os.path.relpath(path, shown)
                if name:
                    (sharing if name == "cpu" else counting).append((folder, 1))
                elif "memory" in (folder / "cgroup.controllers").read_text().split():
                    counting.append((folder, 2))
    return counting + sharing if counting else []


def _parent_folder(own: Path, kind: int) -> Path:
    """The folder for the group of all kernels. With v2 it lies beside the server's group, which cannot have children
    while the server is in it, unless that is the root of the tree."""
    return own if kind == 1 or not (own / "cgroup.type").exists() else own.parent


def _locked(folder: Path) -> int:
    """Create and lock a group. Returns the descriptor that holds the lock. Raises OSError."""
    for _ in range(_LOCK_TRIES):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another starting server removed it
            lock = _open(folder)
            if platform_compat.try_lock(lock) and _is_open_folder(folder, lock):
                return lock
            os.close(lock)
        time.sleep(_LOCK_PAUSE_S)
    raise OSError(errno.EBUSY, "another program holds it locked", str(folder))


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_open_folder(folder: Path, descriptor: int) -> bool:
    """Whether the folder exists and is the open one."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_abandoned(parent: Path) -> None:
    """Remove the groups that no server has locked: their servers were killed."""
    for group in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _open(group)
            try:
                if platform_compat.try_lock(lock):
                    _remove(group)
            finally:
                os.close(lock)


def _remove(group: Path) -> None:
    for below in [*group.glob("*/"), group]:
        with contextlib.suppress(OSError):  # a process in it has not ended
            below.rmdir()


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
