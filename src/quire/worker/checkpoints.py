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
from dataclasses import dataclass
from typing import Any

from quire.wire import packets
from quire.worker import census, processes
from quire.worker.channel import lifted
from quire.worker.keeper import Keeper, Live

_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC  # of an open file, kept when it is opened anew
LIVE = 100  # a live process goes before the newest checkpoint when memory runs out, and after all others
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
        shared = _shared(spare={self._nursery.fileno(), settled, settling, *ours})
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
            packets.close(ours)
            shared.let_go()
            descriptors = self._sleep(self._announce(name, found, settling), shared)
        except BaseException:
            os._exit(1)  # a copy that cannot be one must not go on as the original
        processes.oom_score("self", LIVE)
        random.setstate(state)
        census.carried = found
        return descriptors

    def _announce(self, name: str, found: dict[str, Any], settling: int) -> socket.socket:
        """To the keeper, then to the original; what comes back is where orders come from."""
        mine, keepers = packets.pair()
        packets.send(self._nursery, {"kept": name, "census": found}, [keepers.fileno()])
        keepers.close()
        os.write(settling, b"1")
        os.close(settling)
        return mine

    def _sleep(self, orders: socket.socket, shared: _Shared) -> list[int]:
        """Until it is woken, or is a copy of itself for a branch, which may be taken any number of times."""
        while True:
            words, descriptors, _ = packets.receive(orders)
            if not words:
                os._exit(0)
            if words["do"] == "wake":
                orders.close()
                return descriptors
            if processes.fork_orphan(self._keeper):
                orders.close()
                shared.open_files_anew()
                return self._branch(socket.socket(fileno=descriptors[0]))
            packets.close(descriptors)

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


@dataclass(frozen=True)
class _Shared:
    """Descriptors a copy would share with the original: looked up before the fork, where memory is touched anyway."""

    talking: list[int]  # sockets, pipes and the like
    files: list[int]

    def let_go(self) -> None:
        """What the original talks through is closed here; in its place is what answers nothing."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in (0, 1, 2, *self.talking):
            os.dup2(null, fd, inheritable=fd <= 2 or os.get_inheritable(fd))
        os.close(null)
        self.open_files_anew()

    def open_files_anew(self) -> None:
        """Each a second time, at the same place: two processes that share one move each other in it."""
        for fd in self.files:
            with contextlib.suppress(OSError):  # it may not be opened again: then it is shared
                flags = fcntl.fcntl(fd, fcntl.F_GETFL) & _FLAGS
                anew = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
                os.lseek(anew, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
                os.dup2(anew, fd, inheritable=os.get_inheritable(fd))
                os.close(anew)


def _shared(spare: set[int]) -> _Shared:
    talking, files = [], []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the folder's own is closed by now
            path, mode = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_mode
            if fd <= 2 or fd in spare:
                continue
            if path.startswith(("socket:", "pipe:", "anon_inode:")) or stat.S_ISFIFO(mode):
                talking.append(fd)
            elif path.startswith("/") and stat.S_ISREG(mode):
                files.append(fd)
    return _Shared(talking, files)
