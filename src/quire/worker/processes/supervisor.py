"""The process that owns one kernel: its live process, its checkpoints, and whatever cells leave behind.

It runs no user code and one thread. The server speaks to it on `control`; checkpoints and woken copies
announce themselves on the `nursery`, where the system itself says who sends. When the server is gone, or
lets go of `control`, it kills everything below it and ends.
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

_ANSWER = 5.0  # seconds a checkpoint has to announce its copy
_WORDS = 1_000  # packets heard at once
_RECOUNT = 1.0  # seconds
_CLEAR = 5.0  # seconds killed processes have to be gone


@dataclass(frozen=True)
class _Kept:
    pid: int
    sock: socket.socket


@dataclass(frozen=True)
class Live:
    """What a live process begins with."""

    descriptors: list[int]  # socket, stdout write and read, stderr write and read, lock, relay; then a snapshot's
    nursery: socket.socket  # the way to its keeper
    keeper: int  # the keeper's pid


class Keeper:
    def __init__(self, control: socket.socket) -> None:
        process_tree.adopt_orphans()
        self._control = control
        self._live = 0
        self._former: set[int] = set()  # live processes that were replaced and are not yet buried
        self._kept: dict[str, _Kept] = {}  # oldest first
        self._branches: set[int] = set()  # keepers forked from our checkpoints: not ours to kill
        self._writers: set[int] = set()  # of snapshots
        self._nursery, self._theirs = packets.pair()
        self._nursery.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._oom_kills = memory.oom_kills()
        self._most = 0  # processes that cells may have at once; 0 where nobody has said
        self._recount: float | None = None  # seconds until they are counted again, though nobody asks
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(control, selectors.EVENT_READ, self._on_order)
        # never a receive that waits: an order that was ready in the same moment may have heard the news already
        self._selector.register(self._nursery, selectors.EVENT_READ, self._hear)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._reap)

    def serve(self) -> Live:
        """Keep until the server lets go, which ends this process; comes back only in a live process it forked."""
        while True:
            ready = self._selector.select(self._recount)
            if not ready:
                self._count(self._most)
            for key, _ in ready:
                live = key.data()
                if isinstance(live, Live):
                    return live

    # What the server orders

    def _on_order(self) -> Live | None:
        words, descriptors, _ = packets.receive(self._control)
        if not words:
            self._end()
        try:
            match words["do"]:
                case "start":
                    self._hear()
                    self._strike(self._live)
                    live = self._start(descriptors)
                    if live is not None:
                        descriptors = []  # in the live process: they are what it lives on
                        return live
                case "wake":
                    self._wake(words, descriptors)
                case "branch" if not words["name"]:
                    return self._branch(descriptors)
                case "branch" | "write":
                    self._hand_on(words, descriptors)
                case "drop":
                    for name in words["names"]:
                        self._drop(name)
                case "adopt":
                    self._branches.add(words["pid"])
                case "count":
                    self._count(words["most"])
                case "weigh":
                    self._weigh()
                case "end":
                    self._end()
        finally:
            packets.close(descriptors)
        return None

    def _end(self) -> None:
        """Everything it keeps is killed. The first process of a namespace stays until the branches are gone: with it
        they would be killed."""
        self._clear(everything=True)
        self._say({"ended": True})
        self._control.close()
        while os.getpid() == 1:
            try:
                os.wait()
            except ChildProcessError:
                break
        os._exit(0)

    def _start(self, descriptors: list[int]) -> Live | None:
        keeper = os.getpid()
        pid = os.fork()
        if pid:
            self._live = pid
            self._announce("live", pid)
            return None
        os.setpgid(0, 0)  # a group of its own: an interrupt reaches what the cell started too
        process_tree.die_with_parent(keeper)
        self._leave()
        return Live(descriptors, self._theirs, keeper)

    def _branch(self, descriptors: list[int]) -> Live | None:
        """A second keeper, of the state this one began with."""
        pid = os.fork()
        if pid:
            self._branches.add(pid)
            self._announce("branched", pid)
            return None
        self._leave()
        self._theirs.close()
        return Keeper(packets.of_descriptor(descriptors.pop())).serve()

    def _announce(self, what: str, pid: int) -> None:
        pidfd = os.pidfd_open(pid)
        self._say({what: pid}, [pidfd])
        os.close(pidfd)

    def _leave(self) -> None:
        """In a live process: nothing of the keeper is left but the way to it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        packets.close([self._wake_read, self._wake_write])
        for sock in (self._control, self._nursery, *(kept.sock for kept in self._kept.values())):
            sock.close()

    def _wake(self, words: dict[str, Any], descriptors: list[int]) -> None:
        """The checkpoint takes the live process's place at once; what it replaces is buried meanwhile."""
        self._hear()
        kept = self._kept.pop(words["name"], None)
        try:
            if kept is None:
                raise OSError("it is not kept")
            packets.send(kept.sock, words, descriptors)
            kept.sock.close()
        except OSError as error:
            if kept is not None:
                process_tree.kill(kept.pid)
            self._say({"failed": f"Checkpoint {words['name']} did not wake: {error}.", "do": words["do"]})
            return  # what is live stays so
        former, self._live = self._live, kept.pid
        if former:
            process_tree.kill(former)
        self._strike(former, but=kept.pid)
        self._announce("live", kept.pid)  # only now: of one it knows the server may have a copy taken

    def _hear(self) -> None:
        """What was announced already: a checkpoint that was just taken is not to be killed as a stray."""
        self._nursery.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_WORDS):  # a cell may flood it
                self._on_news()
        self._nursery.setblocking(True)

    def _strike(self, former: int, but: int = 0) -> None:
        """Kill what was live and all that cells started, without waiting for their end: that takes as long as they
        are large, and what is killed starts nothing more."""
        if former:
            self._former.add(former)
        struck: set[int] = set()
        while found := set(process_tree.descendants(os.getpid(), self._spared() | {but})) - struck:
            for pid in found:
                process_tree.kill(pid)
            process_tree.wait_while_hidden(found, _CLEAR)
            struck |= found

    def _hand_on(self, words: dict[str, Any], descriptors: list[int]) -> None:
        """To a checkpoint, whose copy announces itself; nothing else is done until then, so that none kills it."""
        self._hear()
        kept = self._kept.get(words["name"])
        try:
            if kept is None:
                raise OSError("it is not kept")
            packets.send(kept.sock, words, descriptors)
            end = time.monotonic() + _ANSWER
            self._nursery.settimeout(_ANSWER)
            while not self._on_news(asked=True):
                self._nursery.settimeout(max(0.001, end - time.monotonic()))
        except OSError as error:
            self._say({"failed": f"Checkpoint {words['name']} did not wake: {error}.", "do": words["do"]})
        finally:
            self._nursery.settimeout(None)

    def _drop(self, name: str) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            kept.sock.close()
            process_tree.kill(kept.pid)

    def _count(self, most: int) -> None:
        """Cells may have so many processes at once; past that they are a fork bomb, which leaves the keeper hardly a
        moment of the processors: all stand still while it counts and kills."""
        self._hear()
        self._most = most
        if not self._live or process_tree.within() <= most:
            self._recount = None
            return
        self._recount = _RECOUNT
        with process_tree.standing_still():
            if len(process_tree.descendants(os.getpid(), self._spared())) > most:
                self._clear(why="processes")

    def _weigh(self) -> None:
        total, own = memory.held(self._live, {name: kept.pid for name, kept in self._kept.items()})
        self._say({"weighed": total, "own": own})

    # What copies announce

    def _on_news(self, *, asked: bool = False) -> bool:
        """Whether a copy announced itself that was asked for. Cells can find this socket: nothing is believed."""
        words, descriptors, sender = packets.receive(self._nursery)
        try:
            if sender == self._live or process_tree.parent(sender) != os.getpid():
                return False
            match words:
                case {"kept": str(name)} if len(descriptors) == 1:
                    self._keep(name, sender, descriptors.pop())
                case {"branched": _} if asked:
                    self._branches.add(sender)
                    self._announce("branched", sender)
                    return True
                case {"writing": _} if asked:
                    self._writers.add(sender)
                    self._announce("writing", sender)
                    return True
        finally:
            packets.close(descriptors)
        return False

    def _keep(self, name: str, pid: int, descriptor: int) -> None:
        try:
            sock = packets.of_descriptor(descriptor)
        except OSError:
            os.close(descriptor)  # not even a socket
            return
        if sock.type is not socket.SOCK_SEQPACKET or name in self._kept:
            sock.close()
            return
        if self._kept:
            process_tree.oom_score(next(reversed(self._kept.values())).pid, 1000)
        process_tree.oom_score(pid, 0)
        self._kept[name] = _Kept(pid, sock)
        self._recount = _RECOUNT if self._most else None  # what the cell before it has left behind
        self._oom_kills = memory.oom_kills()

    # Who died

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
                self._buried(pid, status, usage.ru_maxrss, why)

    def _buried(self, pid: int, status: int, peak_kb: int, why: str) -> None:
        if pid == self._live:
            self._live = 0
            self._hear()
            oom = memory.oom_kills() > self._oom_kills
            self._clear()  # what the cell started and left behind
            self._say({"died": pid, "status": status, "peak_kb": peak_kb, "oom": oom, "why": why})
        if pid in self._former:
            self._former.remove(pid)
            self._say({"died": pid, "status": status, "peak_kb": peak_kb, "oom": False, "why": ""})
        self._branches.discard(pid)
        self._writers.discard(pid)
        for name, kept in list(self._kept.items()):
            if kept.pid == pid:
                self._drop(name)
                self._say({"gone": name})

    def _spared(self, everything: bool = False) -> set[int]:
        if everything:
            return self._branches
        return self._branches | self._writers | {kept.pid for kept in self._kept.values()}

    def _clear(self, *, everything: bool = False, why: str = "") -> None:
        """Kill the live process and all that cells started; checkpoints too where everything goes."""
        end = time.monotonic() + _CLEAR
        while time.monotonic() < end:
            found = process_tree.descendants(os.getpid(), self._spared(everything))
            if not found:
                return
            for pid in found:
                process_tree.kill(pid)
            self._wait(why)
            time.sleep(0.0005)

    def _say(self, words: dict[str, Any], descriptors: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):  # the server is gone: the end of control says so
            packets.send(self._control, words, descriptors or ())
