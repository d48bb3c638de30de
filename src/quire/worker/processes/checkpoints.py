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
from quire.worker.channel import lifted
from quire.worker.processes import fork_report, process_tree
from quire.worker.processes.fork_report import Census
from quire.worker.processes.supervisor import Keeper, Live
from quire.worker.snapshot import concurrency, writer

_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC  # of an open file, kept when it is opened anew
LIVE = 100  # a live process goes before the newest checkpoint when memory runs out, and after all others
_SETTLE = 5.0  # seconds a copy has to let go of what it shares


class Checkpoints:
    """The live process's way to its keeper."""

    def __init__(self, nursery: socket.socket, keeper: int, subject: writer.Subject) -> None:
        self._nursery = _lifted(nursery)
        self._keeper = keeper
        self._subject = subject
        self._carried: list[str] = []  # libraries that do not work here since it was woken

    @property
    def way(self) -> tuple[socket.socket, int]:
        """To the keeper, and its pid."""
        return self._nursery, self._keeper

    def census(self, ours: list[int]) -> Census:
        """What a copy taken now would lack; `ours` are the channel's descriptors."""
        return fork_report.take({self._nursery.fileno(), *ours}, self._carried)

    def take(self, name: str, found: Census, leave: Callable[[], None]) -> list[int] | None:
        """Leave a copy behind. None in the original; in a copy that was woken, the descriptors to live on.

        `leave` has a copy let go of what is between the original and the server.
        """
        if not found.alone:
            fork_report.pause_openmp()
        state = random.getstate()  # Python reseeds it in every fork
        settled, settling = os.pipe2(os.O_CLOEXEC)
        copied = False
        concurrency.note_threads()
        self._subject.watch.before_copy(name, self._subject.namespace)
        try:
            copied = process_tree.fork_orphan(self._keeper, alone=found.alone)
        finally:
            os.close(settled if copied else settling)
        if not copied:
            # the next cell may bind a port or move in a file that the copy still shares, or crash at once
            if not _settled(settled):
                raise ChildProcessError("the copy did not come up")
            return None
        try:
            leave()
            _let_go(found)
            descriptors = self._sleep(self._announce(name, settling), found, state)
            process_tree.awake()
        except BaseException:
            os._exit(1)  # a copy that cannot be one must not go on as the original
        process_tree.oom_score("self", LIVE)
        random.setstate(state)
        self._carried = found.hostile
        return descriptors

    def _announce(self, name: str, settling: int) -> socket.socket:
        """To the keeper, then to the original; what comes back is where orders come from."""
        mine, keepers = packets.pair()
        packets.send(self._nursery, {"kept": name}, [keepers.fileno()])
        keepers.close()
        os.write(settling, b"1")
        os.close(settling)
        return mine

    def _sleep(self, orders: socket.socket, found: Census, state: Any) -> list[int]:
        """Until it is woken, or is a copy of itself for a branch, of which there may be many. For a snapshot, too,
        it makes a copy, which writes it."""
        while True:
            words, descriptors, _ = packets.receive(orders)
            if not words:
                os._exit(0)
            if words["do"] == "wake":
                orders.close()
                return descriptors
            if words["do"] != "write":  # that copy does without: this one goes on sleeping with its pages untouched
                process_tree.awake()
            if process_tree.fork_orphan(self._keeper, alone=True):
                orders.close()
                process_tree.awake()
                if words["do"] == "write":
                    packets.send(self._nursery, {"writing": os.getpid()})
                    _keep_off(found.files)
                    random.setstate(state)
                    writer.write(self._subject, words, descriptors)
                _open_anew(found.files)
                return self._branch(packets.of_descriptor(descriptors[0]))
            packets.close(descriptors)

    def _branch(self, control: socket.socket) -> list[int]:
        """Be the keeper of a kernel of its own that starts from here; back in each live process it forks."""
        process_tree.outlive_parent()
        packets.send(self._nursery, {"branched": os.getpid()})
        self._nursery.close()
        live: Live = Keeper(control).serve()
        self._nursery, self._keeper = _lifted(live.nursery), live.keeper
        return live.descriptors


def _lifted(sock: socket.socket) -> socket.socket:
    return packets.of_descriptor(lifted(sock.detach()))


def _settled(pipe: int) -> bool:
    """Whether the copy says so before it closes its end, by living or by dying."""
    ready = select.poll()  # not select.select: it takes no descriptor over 1,023
    ready.register(pipe, select.POLLIN)
    try:
        return bool(ready.poll(_SETTLE * 1000)) and bool(os.read(pipe, 1))
    finally:
        os.close(pipe)


def _let_go(found: Census) -> None:
    """What the original talks through is closed here; in its place is what answers nothing."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2, *found.talking):
        os.dup2(null, fd, inheritable=fd <= 2 or os.get_inheritable(fd))
    os.close(null)
    _open_anew(found.files)


def _keep_off(files: dict[int, tuple[int, int]]) -> None:
    """Nothing can be written to these from now on: to ask a file for its place may write what it has buffered."""
    for fd in _still(files):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
            place = os.lseek(fd, 0, os.SEEK_CUR)
            try:
                anew = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # it may be written but not read
                anew = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(anew, place, os.SEEK_SET)
            os.dup2(anew, fd, inheritable=os.get_inheritable(fd))
            os.close(anew)


def _open_anew(files: dict[int, tuple[int, int]]) -> None:
    """Each a second time, at the same place: two processes that share one move each other in it."""
    for fd in _still(files):
        with contextlib.suppress(OSError):  # it may not be opened again: then it is shared
            flags = fcntl.fcntl(fd, fcntl.F_GETFL) & _FLAGS
            anew = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
            os.lseek(anew, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(anew, fd, inheritable=os.get_inheritable(fd))
            os.close(anew)


def _still(files: dict[int, tuple[int, int]]) -> list[int]:
    """Those that are the same file here: a library may close some in every fork, and the number is given anew."""
    found = []
    for fd, which in files.items():
        with contextlib.suppress(OSError):
            now = os.fstat(fd)
            if (now.st_dev, now.st_ino) == which:
                found.append(fd)
    return found
