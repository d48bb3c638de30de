"""Checkpoints: sleeping copies of the live process, taken between runs, that can take its place.

A copy shares nothing with the original but memory: sockets and pipes are closed in it, files are opened again at the
same position, and event loops and thread pools are repaired when it wakes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import socket
from collections.abc import Callable
from typing import Any

from quire.wire import packets
from quire.worker.channel import move_high
from quire.worker.processes import fork_report, process_tree
from quire.worker.processes.fork_report import ForkReport
from quire.worker.processes.supervisor import Supervisor, WorkerStart
from quire.worker.snapshot import concurrency, writer

_KEPT_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC  # of an open file, kept when it is opened again
WORKER_OOM_SCORE = 100  # when memory runs out, killed before the newest checkpoint and after all others
_READY_TIMEOUT_S = 5.0  # for a copy to close what it shares


class Checkpoints:
    """Takes checkpoints of the live process and registers them with the supervisor."""

    def __init__(self, announce_socket: socket.socket, supervisor_pid: int, subject: writer.Subject) -> None:
        self._announce_socket = _move_high(announce_socket)
        self._supervisor_pid = supervisor_pid
        self._subject = subject
        self._unusable_libraries: list[str] = []  # libraries that do not work since this process was woken

    @property
    def supervisor_link(self) -> tuple[socket.socket, int]:
        """The socket for announcements, and the supervisor's pid."""
        return self._announce_socket, self._supervisor_pid

    def report_fork(self, own: list[int]) -> ForkReport:
        """What a copy taken now would lack. `own` are the channel's descriptors."""
        return fork_report.collect({self._announce_socket.fileno(), *own}, self._unusable_libraries)

    def take(self, name: str, report: ForkReport, detach_channel: Callable[[], None]) -> list[int] | None:
        """Fork a checkpoint. Returns None in the original, and the descriptors to use in a copy that was woken.

        `detach_channel` closes the original's connection to the server in the copy.
        """
        if not report.single_threaded:
            fork_report.pause_openmp()
        state = random.getstate()  # Python reseeds it in every fork
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        is_copy = False
        concurrency.note_threads()
        self._subject.watch.before_copy(name, self._subject.namespace)
        try:
            is_copy = process_tree.fork_sibling(self._supervisor_pid, single_threaded=report.single_threaded)
        finally:
            os.close(ready_read if is_copy else ready_write)
        if not is_copy:
            # until then the next cell could use a port or a file position that the copy shares, or crash
            if not _is_ready(ready_read):
                raise ChildProcessError("the copy did not come up")
            return None
        try:
            detach_channel()
            _detach(report)
            descriptors = self._sleep(self._announce(name, ready_write), report, state)
            process_tree.finish_fork()
        except BaseException:
            os._exit(1)  # a failed copy must not continue as the original
        process_tree.set_oom_score("self", WORKER_OOM_SCORE)
        random.setstate(state)
        self._unusable_libraries = report.hostile
        return descriptors

    def _announce(self, name: str, ready_write: int) -> socket.socket:
        """Announce this copy to the supervisor, then to the original. Orders come on the returned socket."""
        own_end, supervisor_end = packets.socket_pair()
        packets.send(self._announce_socket, {"checkpoint": name}, [supervisor_end.fileno()])
        supervisor_end.close()
        os.write(ready_write, b"1")
        os.close(ready_write)
        return own_end

    def _sleep(self, orders: socket.socket, report: ForkReport, state: Any) -> list[int]:
        """Sleep until woken. For a branch or a snapshot, fork a further copy, which continues as the branch or writes
        the snapshot."""
        while True:
            message, descriptors, _ = packets.receive(orders)
            if not message:
                os._exit(0)
            if message["do"] == "wake":
                orders.close()
                return descriptors
            if message["do"] != "write":  # a writer is forked without this, so that this copy's pages stay untouched
                process_tree.finish_fork()
            if process_tree.fork_sibling(self._supervisor_pid, single_threaded=True):
                orders.close()
                process_tree.finish_fork()
                if message["do"] == "write":
                    packets.send(self._announce_socket, {"writing": os.getpid()})
                    _make_read_only(report.files)
                    random.setstate(state)
                    writer.write(self._subject, message, descriptors)
                _reopen(report.files)
                return self._branch(packets.socket_from_descriptor(descriptors[0]))
            packets.close(descriptors)

    def _branch(self, control: socket.socket) -> list[int]:
        """Become the supervisor of a new kernel that starts from here. Returns in each live process it forks."""
        process_tree.outlive_parent()
        packets.send(self._announce_socket, {"branched": os.getpid()})
        self._announce_socket.close()
        start: WorkerStart = Supervisor(control).serve()
        self._announce_socket, self._supervisor_pid = _move_high(start.announce_socket), start.supervisor_pid
        return start.descriptors


def _move_high(sock: socket.socket) -> socket.socket:
    return packets.socket_from_descriptor(move_high(sock.detach()))


def _is_ready(ready_read: int) -> bool:
    """Whether the copy reports that it is ready, before it ends or the time is over."""
    ready = select.poll()  # select.select cannot handle descriptors over 1,023
    ready.register(ready_read, select.POLLIN)
    try:
        return bool(ready.poll(_READY_TIMEOUT_S * 1000)) and bool(os.read(ready_read, 1))
    finally:
        os.close(ready_read)


def _detach(report: ForkReport) -> None:
    """Replace sockets and pipes by /dev/null, and open files again."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2, *report.ipc_descriptors):
        os.dup2(null, fd, inheritable=fd <= 2 or os.get_inheritable(fd))
    os.close(null)
    _reopen(report.files)


def _make_read_only(files: dict[int, tuple[int, int]]) -> None:
    """Make open files read-only: asking a file object for its position may write its buffer."""
    for fd in _unchanged(files):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
            position = os.lseek(fd, 0, os.SEEK_CUR)
            try:
                new_fd = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # it cannot be read
                new_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(new_fd, position, os.SEEK_SET)
            os.dup2(new_fd, fd, inheritable=os.get_inheritable(fd))
            os.close(new_fd)


def _reopen(files: dict[int, tuple[int, int]]) -> None:
    """Open each file again at its position, since processes that share a file share its position."""
    for fd in _unchanged(files):
        with contextlib.suppress(OSError):  # if it cannot be opened again, it stays shared
            flags = fcntl.fcntl(fd, fcntl.F_GETFL) & _KEPT_FLAGS
            new_fd = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
            os.lseek(new_fd, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(new_fd, fd, inheritable=os.get_inheritable(fd))
            os.close(new_fd)


def _unchanged(files: dict[int, tuple[int, int]]) -> list[int]:
    """Descriptors that still refer to the same file. A library may close some in a fork; numbers are reused."""
    unchanged = []
    for fd, file in files.items():
        with contextlib.suppress(OSError):
            current = os.fstat(fd)
            if (current.st_dev, current.st_ino) == file:
                unchanged.append(fd)
    return unchanged
