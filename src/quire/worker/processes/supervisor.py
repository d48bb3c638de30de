"""The supervisor of one kernel: starts, wakes, kills and reaps the live process, checkpoints and what cells leave
behind.

It runs no user code and has one thread. The server sends orders on `control`; checkpoints announce themselves on
another socket, where Linux identifies the sender. When the server closes `control`, the supervisor kills all its
processes and ends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from quire.wire import packets
from quire.worker.processes import memory, process_tree

_ANNOUNCE_TIMEOUT_S = 5.0  # for a checkpoint to announce its copy
_MAX_PACKETS = 1_000  # read at once
_RECOUNT_INTERVAL_S = 1.0
_KILL_TIMEOUT_S = 5.0  # for killed processes to end


@dataclass(frozen=True)
class _Checkpoint:
    pid: int
    sock: socket.socket


@dataclass(frozen=True)
class WorkerStart:
    """What a live process needs at its start."""

    descriptors: list[int]  # socket, stdout write and read, stderr write and read, lock, relay; then a snapshot's
    announce_socket: socket.socket  # for announcements to its supervisor
    supervisor_pid: int


class Supervisor:
    def __init__(self, control: socket.socket) -> None:
        process_tree.become_subreaper()
        self._control = control
        self._worker_pid = 0
        self._replaced: set[int] = set()  # live processes that were replaced and not yet reaped
        self._checkpoints: dict[str, _Checkpoint] = {}  # oldest first
        self._branches: set[int] = set()  # supervisors forked from checkpoints; not killed here
        self._snapshot_writers: set[int] = set()
        self._announcements, self._announce_socket = packets.socket_pair()
        self._announcements.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._oom_kills = memory.oom_kills()
        self._max_processes = 0  # of cells; 0 is no limit
        self._recount_s: float | None = None  # until processes are counted without an order
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(control, selectors.EVENT_READ, self._on_order)
        # it must not block: an order handled before may have read the announcement
        self._selector.register(self._announcements, selectors.EVENT_READ, self._read_announcements)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._reap)

    def serve(self) -> WorkerStart:
        """Serve until the server disconnects, which ends this process. Returns only in a live process it forked."""
        while True:
            ready = self._selector.select(self._recount_s)
            if not ready:
                self._limit_processes(self._max_processes)
            for key, _ in ready:
                worker_start = key.data()
                if isinstance(worker_start, WorkerStart):
                    return worker_start

    # Orders of the server

    def _on_order(self) -> WorkerStart | None:
        message, descriptors, _ = packets.receive(self._control)
        if not message:
            self._close()
        try:
            match message["do"]:
                case "start":
                    self._read_announcements()
                    self._kill_worker(self._worker_pid)
                    worker_start = self._start(descriptors)
                    if worker_start is not None:
                        descriptors = []  # the live process uses them
                        return worker_start
                case "wake":
                    self._wake_checkpoint(message, descriptors)
                case "branch" if not message["name"]:
                    return self._branch(descriptors)
                case "branch" | "write":
                    self._forward(message, descriptors)
                case "drop":
                    for name in message["names"]:
                        self._drop_checkpoint(name)
                case "adopt":
                    self._branches.add(message["pid"])
                case "limit_processes":
                    self._limit_processes(message["limit"])
                case "measure":
                    self._measure()
                case "end":
                    self._close()
        finally:
            packets.close(descriptors)
        return None

    def _close(self) -> None:
        """Kill all processes and end. The first process of a namespace waits for the branches in it, since they would
        be killed with it."""
        self._kill_all(everything=True)
        self._send({"ended": True})
        self._control.close()
        while os.getpid() == 1:
            try:
                os.wait()
            except ChildProcessError:
                break
        os._exit(0)

    def _start(self, descriptors: list[int]) -> WorkerStart | None:
        supervisor_pid = os.getpid()
        pid = os.fork()
        if pid:
            self._worker_pid = pid
            self._announce("live", pid)
            return None
        os.setpgid(0, 0)  # so that an interrupt reaches what the cell started
        process_tree.die_with_parent(supervisor_pid)
        self._close_in_child()
        return WorkerStart(descriptors, self._announce_socket, supervisor_pid)

    def _branch(self, descriptors: list[int]) -> WorkerStart | None:
        """Fork a second supervisor with the state this one began with."""
        pid = os.fork()
        if pid:
            self._branches.add(pid)
            self._announce("branched", pid)
            return None
        self._close_in_child()
        self._announce_socket.close()
        return Supervisor(packets.socket_from_descriptor(descriptors.pop())).serve()

    def _announce(self, key: str, pid: int) -> None:
        pidfd = os.pidfd_open(pid)
        self._send({key: pid}, [pidfd])
        os.close(pidfd)

    def _close_in_child(self) -> None:
        """In a live process: close all descriptors of the supervisor."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        packets.close([self._wake_read, self._wake_write])
        for sock in (
            self._control,
            self._announcements,
            *(checkpoint.sock for checkpoint in self._checkpoints.values()),
        ):
            sock.close()

    def _wake_checkpoint(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Have a checkpoint take the live process's place at once; the replaced process is reaped later."""
        self._read_announcements()
        checkpoint = self._checkpoints.pop(message["name"], None)
        try:
            if checkpoint is None:
                raise OSError("it is not kept")
            packets.send(checkpoint.sock, message, descriptors)
            checkpoint.sock.close()
        except OSError as error:
            if checkpoint is not None:
                process_tree.kill(checkpoint.pid)
            self._send({"failed": f"Checkpoint {message['name']} did not wake: {error}.", "do": message["do"]})
            return  # the live process stays
        replaced, self._worker_pid = self._worker_pid, checkpoint.pid
        if replaced:
            process_tree.kill(replaced)
        self._kill_worker(replaced, except_pid=checkpoint.pid)
        self._announce("live", checkpoint.pid)  # last: the server may take a checkpoint of it as soon as it knows it

    def _read_announcements(self) -> None:
        """Read pending announcements, so that a new checkpoint is not killed as unknown."""
        self._announcements.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MAX_PACKETS):  # a cell may flood the socket
                self._on_announcement()
        self._announcements.setblocking(True)

    def _kill_worker(self, replaced: int, except_pid: int = 0) -> None:
        """Kill the live process and all that cells started, without waiting for their end, which takes long for large
        processes."""
        if replaced:
            self._replaced.add(replaced)
        killed: set[int] = set()
        while pids := set(process_tree.descendants(os.getpid(), self._protected() | {except_pid})) - killed:
            for pid in pids:
                process_tree.kill(pid)
            process_tree.wait_while_hidden(pids, _KILL_TIMEOUT_S)
            killed |= pids

    def _forward(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Forward an order to a checkpoint and wait for its copy's announcement; otherwise the copy could be killed as
        unknown."""
        self._read_announcements()
        checkpoint = self._checkpoints.get(message["name"])
        try:
            if checkpoint is None:
                raise OSError("it is not kept")
            packets.send(checkpoint.sock, message, descriptors)
            deadline = time.monotonic() + _ANNOUNCE_TIMEOUT_S
            self._announcements.settimeout(_ANNOUNCE_TIMEOUT_S)
            while not self._on_announcement(expected=True):
                self._announcements.settimeout(max(0.001, deadline - time.monotonic()))
        except OSError as error:
            self._send({"failed": f"Checkpoint {message['name']} did not wake: {error}.", "do": message["do"]})
        finally:
            self._announcements.settimeout(None)

    def _drop_checkpoint(self, name: str) -> None:
        checkpoint = self._checkpoints.pop(name, None)
        if checkpoint is not None:
            checkpoint.sock.close()
            process_tree.kill(checkpoint.pid)

    def _limit_processes(self, limit: int) -> None:
        """Kill a fork bomb: all processes of cells, if there are more than the limit. They are stopped while it counts
        and kills, or it would hardly get processor time."""
        self._read_announcements()
        self._max_processes = limit
        if not self._worker_pid or process_tree.namespace_size() <= limit:
            self._recount_s = None
            return
        self._recount_s = _RECOUNT_INTERVAL_S
        with process_tree.stopped_namespace():
            if len(process_tree.descendants(os.getpid(), self._protected())) > limit:
                self._kill_all(why="processes")

    def _measure(self) -> None:
        total, own = memory.checkpoint_sizes(
            self._worker_pid, {name: checkpoint.pid for name, checkpoint in self._checkpoints.items()}
        )
        self._send({"measured": total, "own": own})

    # Announcements of copies

    def _on_announcement(self, *, expected: bool = False) -> bool:
        """Read an announcement. True if it is the expected one. Cells can send here, so it is checked."""
        message, descriptors, sender = packets.receive(self._announcements)
        try:
            if sender == self._worker_pid or process_tree.parent(sender) != os.getpid():
                return False
            match message:
                case {"checkpoint": str(name)} if len(descriptors) == 1:
                    self._add_checkpoint(name, sender, descriptors.pop())
                case {"branched": _} if expected:
                    self._branches.add(sender)
                    self._announce("branched", sender)
                    return True
                case {"writing": _} if expected:
                    self._snapshot_writers.add(sender)
                    self._announce("writing", sender)
                    return True
        finally:
            packets.close(descriptors)
        return False

    def _add_checkpoint(self, name: str, pid: int, descriptor: int) -> None:
        try:
            sock = packets.socket_from_descriptor(descriptor)
        except OSError:
            os.close(descriptor)  # not a socket
            return
        if sock.type is not socket.SOCK_SEQPACKET or name in self._checkpoints:
            sock.close()
            return
        if self._checkpoints:
            process_tree.set_oom_score(next(reversed(self._checkpoints.values())).pid, 1000)
        process_tree.set_oom_score(pid, 0)
        self._checkpoints[name] = _Checkpoint(pid, sock)
        self._recount_s = _RECOUNT_INTERVAL_S if self._max_processes else None  # for processes that the cell left
        self._oom_kills = memory.oom_kills()

    # Exits

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        self._wait()

    def _wait(self, why: str = "") -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._on_exit(pid, status, usage.ru_maxrss, why)

    def _on_exit(self, pid: int, status: int, peak_kb: int, why: str) -> None:
        if pid == self._worker_pid:
            self._worker_pid = 0
            self._read_announcements()
            oom = memory.oom_kills() > self._oom_kills
            self._kill_all()  # what the cell started
            self._send({"died": pid, "status": status, "peak_kb": peak_kb, "oom": oom, "why": why})
        if pid in self._replaced:
            self._replaced.remove(pid)
            self._send({"died": pid, "status": status, "peak_kb": peak_kb, "oom": False, "why": ""})
        self._branches.discard(pid)
        self._snapshot_writers.discard(pid)
        for name, checkpoint in list(self._checkpoints.items()):
            if checkpoint.pid == pid:
                self._drop_checkpoint(name)
                self._send({"gone": name})

    def _protected(self, everything: bool = False) -> set[int]:
        if everything:
            return self._branches
        return self._branches | self._snapshot_writers | {checkpoint.pid for checkpoint in self._checkpoints.values()}

    def _kill_all(self, *, everything: bool = False, why: str = "") -> None:
        """Kill the live process and all that cells started; with `everything` checkpoints, too."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while time.monotonic() < deadline:
            pids = process_tree.descendants(os.getpid(), self._protected(everything))
            if not pids:
                return
            for pid in pids:
                process_tree.kill(pid)
            self._wait(why)
            time.sleep(0.0005)

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):  # the server is gone, which `control` reports
            packets.send(self._control, message, descriptors or ())
