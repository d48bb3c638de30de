"""A control group for each kernel: memory and processes of all that belongs to it, walled by the system itself, and a
fair share of the processors, however many processes it has.

Both kinds of Linux are known: one tree of groups (v2), or one for each resource (v1).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from quire.core.errors import Failed

_PREFIX = "quire-"
_FILES = {1: ("memory.limit_in_bytes", "pids.max", "cgroup.procs"), 2: ("memory.max", "pids.max", "cgroup.procs")}
_SHARES = 1024  # of a processor: what a process outside of any group has
_SPARE = 500  # processes beyond a notebook's own: its checkpoints, its keeper


@dataclass(frozen=True)
class Cgroup:
    folders: tuple[tuple[Path, int], ...]  # each with the kind of tree it lies in

    def limit(self, *, memory: int, processes: int) -> None:
        """0 is no limit."""
        for folder, kind in self.folders:
            largest, most, _ = _FILES[kind]
            for name, value in ((largest, memory), (most, processes + _SPARE if processes else 0)):
                if (folder / name).exists():
                    _write(folder / name, str(value) if value else ("max" if kind == 2 or name == most else "-1"))

    def add(self, pid: int) -> None:
        """With all that it will start."""
        for folder, kind in self.folders:
            _write(folder / _FILES[kind][2], str(pid))

    def remove(self) -> bool:
        """Whether it is gone; not while a process is in it."""
        gone = True
        for folder, _ in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                gone = False
        return gone


class Cgroups:
    """The server's own group in each tree, made once, with one below for each kernel."""

    def __init__(self, folders: tuple[tuple[Path, int], ...]) -> None:
        self._folders = folders
        self._number = 0
        self._left: list[Cgroup] = []  # some process of theirs was not yet gone

    @classmethod
    def open(cls) -> Cgroups | str:
        """Those of this process; or why there are none."""
        try:
            trees = _trees(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
            if not trees:
                return "no control groups for memory and processes are mounted"
            name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"  # one process may hold several servers
            return cls(tuple(_begin(folder, kind, name) for folder, kind in trees))
        except OSError as error:
            return f"its control group cannot be divided ({error.strerror}: {error.filename})"

    def make(self) -> Cgroup:
        self._number += 1
        self._left = [group for group in self._left if not group.remove()]
        made = Cgroup(tuple((folder / f"kernel-{self._number}", kind) for folder, kind in self._folders))
        for folder, _ in made.folders:
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise Failed(f"A kernel could not be given a control group: {error}.") from error
        return made

    def give_back(self, group: Cgroup) -> None:
        if not group.remove():
            self._left.append(group)

    def close(self) -> None:
        for group in self._left:
            group.remove()
        for folder, _ in self._folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _trees(own: str, mounts: str) -> list[tuple[Path, int]]:
    """This process's group in each tree that counts memory or processes, and then in the one that shares processors."""
    places: dict[str, tuple[Path, str]] = {}  # where each tree is mounted, and of which group
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, inner, where = before.split(" ")[:5]
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


def _begin(own: Path, kind: int, name: str) -> tuple[Path, int]:
    """A group for all kernels of this server. In one tree it lies beside the server's, which cannot be divided while
    the server is in it, unless it is the root of the tree."""
    above = own if kind == 1 or not (own / "cgroup.type").exists() else own.parent
    for old in above.glob(f"{_PREFIX}*"):
        if not Path("/proc", old.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            _sweep(old)
    mine = above / name
    mine.mkdir(exist_ok=True)
    try:
        if kind == 2:
            there = (mine / "cgroup.controllers").read_text().split()
            wanted = [f"+{name}" for name in ("memory", "pids", "cpu") if name in there]
            _write(mine / "cgroup.subtree_control", " ".join(wanted))
        if (shares := mine / "cpu.shares").exists():  # of all kernels together, against what else runs here
            _write(shares, str(_SHARES * (os.cpu_count() or 1)))
    except OSError:
        mine.rmdir()
        raise
    return mine, kind


def _sweep(group: Path) -> None:
    """What a server left that was killed."""
    for below in [*group.glob("*/"), group]:
        with contextlib.suppress(OSError):
            below.rmdir()


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
