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
import stat
from typing import Any

from quire.wire import packets
from quire.worker import census, processes
from quire.worker.channel import lifted
from quire.worker.keeper import Keeper, Live

_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC  # of an open file, kept when it is opened anew
_SETTLE = 5.0  # seconds a copy has to let go of what it shares


class Checkpoints:
    """The live process's way to its keeper."""

    def __init__(self, nursery: socket.socket, keeper: int) -> None:
        self._nursery = _lifted(nursery)
        self._keeper = keeper

    def take(self, name: str, found: dict[str, Any], ours: list[int]) -> list[int] | None:
        """Leave a copy behind. None in the original; in a copy that was woken, the descriptors to live on.

        `ours` are the descriptors of the channel, of which a copy keeps none.
        """
        census.pause_openmp()
        state = random.getstate()  # Python reseeds it in every fork
        settled, settling = os.pipe2(os.O_CLOEXEC)
        copied = False
        try:
            copied = processes.fork_orphan(self._keeper)
        finally:
            os.close(settled if copied else settling)
        if not copied:
            # the next cell may bind a port or move in a file that the copy still shares
            if not _settled(settled):
                raise ChildProcessError("the copy did not come up")
            return None
        try:
            descriptors = self._be_kept(name, found, ours, settling)
        except BaseException:
            os._exit(1)  # a copy that cannot be one must not go on as the original
        random.setstate(state)
        return descriptors

    def _be_kept(self, name: str, found: dict[str, Any], ours: list[int], settling: int) -> list[int]:
        packets.close(ours)
        _let_go(spare={self._nursery.fileno(), settling})
        mine, keepers = packets.pair()
        packets.send(self._nursery, {"kept": name, "census": found}, [keepers.fileno()])
        keepers.close()
        os.write(settling, b"1")
        os.close(settling)
        descriptors = self._sleep(mine)
        _open_files_anew()
        return descriptors

    def _sleep(self, orders: socket.socket) -> list[int]:
        """Until woken; what wakes is a copy of the copy, so that a checkpoint can wake any number of times."""
        while True:
            words, descriptors, _ = packets.receive(orders)
            if not words:
                os._exit(0)
            if processes.fork_orphan(self._keeper):
                break
            packets.close(descriptors)
        orders.close()
        if words["do"] == "branch":
            return self._branch(socket.socket(fileno=descriptors[0]))
        packets.send(self._nursery, {"woken": words["name"]})
        return descriptors

    def _branch(self, control: socket.socket) -> list[int]:
        """Be the keeper of a kernel of its own that starts from here; back in each live process it forks."""
        processes.outlive_parent()
        packets.send(self._nursery, {"branched": os.getpid()})
        self._nursery.close()
        live: Live = Keeper(control).serve()
        self._nursery, self._keeper = _lifted(live.nursery), live.keeper
        return live.descriptors


def _lifted(sock: socket.socket) -> socket.socket:
    return socket.socket(fileno=lifted(sock.detach()))


def _settled(pipe: int) -> bool:
    """Whether the copy says so before it closes its end, by living or by dying."""
    try:
        with select.epoll() as waiting:  # not select.select: it takes no descriptor over 1,023
            waiting.register(pipe, select.EPOLLIN)
            return bool(waiting.poll(_SETTLE)) and bool(os.read(pipe, 1))
    finally:
        os.close(pipe)


def _let_go(spare: set[int]) -> None:
    """Nothing the original talks through stays open here; in its place is what answers nothing."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd, path in _open_descriptors():
        if fd in spare or fd == null:
            continue
        if fd <= 2 or path.startswith(("socket:", "pipe:", "anon_inode:")) or stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.dup2(null, fd, inheritable=os.get_inheritable(fd))
    os.close(null)
    _open_files_anew()


def _open_files_anew() -> None:
    """Each open file a second time, at the same place: two processes that share one move each other in it."""
    for fd, path in _open_descriptors():
        if not path.startswith("/"):
            continue
        with contextlib.suppress(OSError):  # it may not be opened again: then it is shared
            if stat.S_ISREG(os.fstat(fd).st_mode):
                flags = fcntl.fcntl(fd, fcntl.F_GETFL) & _FLAGS
                anew = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
                os.lseek(anew, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
                os.dup2(anew, fd, inheritable=os.get_inheritable(fd))
                os.close(anew)


def _open_descriptors() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own is closed by now
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found
