"""A checkpoint: a sleeping copy of this process, taken between runs, that wakes into the live process again.

The copy keeps memory, and nothing it would share with the original: sockets and pipes are dropped in it,
files are opened anew at the place where they stood, event loops and thread pools are made to work again.
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

_KEPT_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC  # of an open file, kept when it is opened anew
WORKER_OOM_SCORE = 100  # a live process goes before the newest checkpoint when memory runs out, and after all others
_READY_TIMEOUT_S = 5.0  # seconds a copy has to let go of what it shares


class Checkpoints:
    """The live process's way to its keeper."""

    def __init__(self, announce_socket: socket.socket, supervisor_pid: int, subject: writer.Subject) -> None:
        self._announce_socket = _move_high(announce_socket)
        self._supervisor_pid = supervisor_pid
        self._subject = subject
        self._unusable_libraries: list[str] = []  # libraries that do not work here since it was woken

    @property
    def supervisor_link(self) -> tuple[socket.socket, int]:
        """To the keeper, and its pid."""
        return self._announce_socket, self._supervisor_pid

    def report_fork(self, ours: list[int]) -> ForkReport:
        """What a copy taken now would lack; `ours` are the channel's descriptors."""
        return fork_report.collect({self._announce_socket.fileno(), *ours}, self._unusable_libraries)

    def take(self, name: str, report: ForkReport, detach_channel: Callable[[], None]) -> list[int] | None:
        """Leave a copy behind. None in the original; in a copy that was woken, the descriptors to live on.

        `leave` has a copy let go of what is between the original and the server.
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
            # the next cell may bind a port or move in a file that the copy still shares, or crash at once
            if not _is_ready(ready_read):
                raise ChildProcessError("the copy did not come up")
            return None
        try:
            detach_channel()
            _detach(report)
            descriptors = self._sleep(self._announce(name, ready_write), report, state)
            process_tree.finish_fork()
        except BaseException:
            os._exit(1)  # a copy that cannot be one must not go on as the original
        process_tree.set_oom_score("self", WORKER_OOM_SCORE)
        random.setstate(state)
        self._unusable_libraries = report.hostile
        return descriptors

    def _announce(self, name: str, ready_write: int) -> socket.socket:
        """To the keeper, then to the original; what comes back is where orders come from."""
        own_end, supervisor_end = packets.pair()
        packets.send(self._announce_socket, {"checkpoint": name}, [supervisor_end.fileno()])
        supervisor_end.close()
        os.write(ready_write, b"1")
        os.close(ready_write)
        return own_end

    def _sleep(self, orders: socket.socket, report: ForkReport, state: Any) -> list[int]:
        """Until it is woken, or is a copy of itself for a branch, of which there may be many. For a snapshot, too,
        it makes a copy, which writes it."""
        while True:
            message, descriptors, _ = packets.receive(orders)
            if not message:
                os._exit(0)
            if message["do"] == "wake":
                orders.close()
                return descriptors
            if message["do"] != "write":  # that copy does without: this one goes on sleeping with its pages untouched
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
                return self._branch(packets.of_descriptor(descriptors[0]))
            packets.close(descriptors)

    def _branch(self, control: socket.socket) -> list[int]:
        """Be the keeper of a kernel of its own that starts from here; back in each live process it forks."""
        process_tree.outlive_parent()
        packets.send(self._announce_socket, {"branched": os.getpid()})
        self._announce_socket.close()
        start: WorkerStart = Supervisor(control).serve()
        self._announce_socket, self._supervisor_pid = _move_high(start.announce_socket), start.supervisor_pid
        return start.descriptors


def _move_high(sock: socket.socket) -> socket.socket:
    return packets.of_descriptor(move_high(sock.detach()))


def _is_ready(ready_read: int) -> bool:
    """Whether the copy says so before it closes its end, by living or by dying."""
    ready = select.poll()  # not select.select: it takes no descriptor over 1,023
    ready.register(ready_read, select.POLLIN)
    try:
        return bool(ready.poll(_READY_TIMEOUT_S * 1000)) and bool(os.read(ready_read, 1))
    finally:
        os.close(ready_read)


def _detach(report: ForkReport) -> None:
    """What the original talks through is closed here; in its place is what answers nothing."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2, *report.ipc_descriptors):
        os.dup2(null, fd, inheritable=fd <= 2 or os.get_inheritable(fd))
    os.close(null)
    _reopen(report.files)


def _make_read_only(files: dict[int, tuple[int, int]]) -> None:
    """Nothing can be written to these from now on: to ask a file for its place may write what it has buffered."""
    for fd in _unchanged(files):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
            position = os.lseek(fd, 0, os.SEEK_CUR)
            try:
                new_fd = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # it may be written but not read
                new_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(new_fd, position, os.SEEK_SET)
            os.dup2(new_fd, fd, inheritable=os.get_inheritable(fd))
            os.close(new_fd)


def _reopen(files: dict[int, tuple[int, int]]) -> None:
    """Each a second time, at the same place: two processes that share one move each other in it."""
    for fd in _unchanged(files):
        with contextlib.suppress(OSError):  # it may not be opened again: then it is shared
            flags = fcntl.fcntl(fd, fcntl.F_GETFL) & _KEPT_FLAGS
            new_fd = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
            os.lseek(new_fd, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(new_fd, fd, inheritable=os.get_inheritable(fd))
            os.close(new_fd)


def _unchanged(files: dict[int, tuple[int, int]]) -> list[int]:
    """Those that are the same file here: a library may close some in every fork, and the number is given anew."""
    unchanged = []
    for fd, file in files.items():
        with contextlib.suppress(OSError):
            current = os.fstat(fd)
            if (current.st_dev, current.st_ino) == file:
                unchanged.append(fd)
    return unchanged
