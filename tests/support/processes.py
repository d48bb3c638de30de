"""Processes of this machine: which run, whose children they are, and programs that listen on a port."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import wait_until


def processes_of(root: int) -> list[int]:
    """Every living process below `root`."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def listening(command: list[str], **environment: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A program that serves HTTP at PORT, which is passed on: its port, and the process."""
    port = free_port()
    env = {**os.environ, **environment, "PORT": str(port)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None, f"{command} ended with {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        wait_until(answers, f"{command} listens")
        yield port, process
    finally:
        process.kill()
        process.wait()


def parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0  # it is gone


def here(number: int, namespace: str) -> int:
    """The machine's own number of a process that has this one in its namespace; 0 if there is no such process."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            names = place.joinpath("status").read_text().partition("NSpid:")[2].split("\n", 1)[0].split()
            if names and int(names[-1]) == number and os.readlink(place / "ns" / "pid") == namespace:
                return int(place.name)
    return 0


def left_over(data_dir: Path) -> list[int]:
    """Every process that was started with this data directory in its environment or has its database open."""
    mark = f"QUIRE_STORE_DATA_DIR={data_dir}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in {*found, *servers_of(data_dir)} if alive(pid)]


def server_of(data_dir: Path) -> int:
    """The one server process on this data directory, once it has opened its database."""
    wait_until(lambda: servers_of(data_dir), "the server has its database open")
    (server,) = servers_of(data_dir)
    return server


def servers_of(data_dir: Path) -> list[int]:
    """The server processes on this data directory: only they have the database open."""
    database, found = str(data_dir / "quire.db"), []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and any(os.readlink(file) == database for file in (entry / "fd").iterdir()):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def resident(pid: int, what: str = "VmRSS") -> int:
    """Bytes of memory a process has, or (VmHWM) had at its largest."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def minor_faults(pid: int) -> int:
    """Pages that this process had to be given, or copied, so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def forget_peak(pid: int) -> None:
    """The largest memory of a process counts from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
