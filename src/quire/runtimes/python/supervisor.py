"""The keeper's parent side: give it orders, hear what it keeps and how processes died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import socket
from pathlib import Path
from typing import Any

from quire.core.errors import OperationFailed
from quire.core.model import ForkReport
from quire.runtimes.python.exit_reason import Exit
from quire.runtimes.python.kill_wait import wait_killed
from quire.wire import packets

_END = 3.0  # seconds a keeper has to kill what is below it, before it is killed itself
_ANSWER = 15.0  # seconds it has to answer an order
_ANSWERS = {"start": "live", "wake": "live", "branch": "branched", "write": "writing"}  # late ones are for nobody


class Keeper:
    """One for a kernel. What it says is checked: cells have found the sockets of others before. Processes are named by
    the descriptors it hands over, not by what it calls them."""

    def __init__(self, control: socket.socket, pidfd: int, ids: int = -1) -> None:
        self._control = control
        self._pidfd = pidfd
        self.pid = _pid_of(pidfd)
        self.ids = ids  # the user namespace it lives in, where that is its own
        self.door: tuple[int, socket.socket] | None = None  # in its loopback, and the port of it
        self._names: dict[int, int] = {}  # what it calls a process, and what that is called here
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()  # orders that are answered
        self._asked = ""  # what the order was that is to be answered
        self._answer: asyncio.Future[tuple[int, int]] | None = None  # of start, wake, branch and write: pid and pidfd
        self._weighed: asyncio.Future[tuple[int, dict[str, int]]] | None = None
        self._deaths: dict[int, asyncio.Future[Exit]] = {}
        self.kept: dict[str, ForkReport] = {}  # checkpoints, oldest first
        self.live = 0  # the pid of the live process
        self.branched = False  # others live in its namespaces
        self._loop.add_reader(control.fileno(), self._heard)
        self._loop.add_reader(pidfd, self._on_death)

    @property
    def alive(self) -> bool:
        return not self._gone.is_set() and self._control.fileno() >= 0 and not self._has_ended()

    def _has_ended(self) -> bool:
        """Asked of the system: the loop hears of it a moment later, and what runs meanwhile would be lost."""
        ready = select.poll()
        ready.register(self._pidfd, select.POLLIN)
        return bool(ready.poll(0))

    async def launch(self, order: dict[str, Any], descriptors: list[int]) -> tuple[int, int]:
        """Have it start, wake, branch or write: the new process's pid, and a pidfd that is the caller's to close."""
        async with self._one_at_a_time:
            answer = self._answer = self._loop.create_future()
            self._asked = order["do"]
            try:
                packets.send(self._control, order, descriptors)
                async with asyncio.timeout(_ANSWER):
                    return await asyncio.shield(answer)
            except asyncio.CancelledError:
                if answer.done() and answer.exception() is None:
                    os.close(answer.result()[1])  # whoever asked is gone
                raise
            except TimeoutError as error:
                if order["do"] != "write":  # which is not worth the kernel
                    self._kill()  # one that does not answer keeps nothing
                raise OperationFailed("The process that keeps this kernel does not answer.") from error
            except OSError as error:
                self._kill()
                raise OperationFailed(
                    f"The process that keeps this kernel cannot be reached ({error.strerror})."
                ) from error
            finally:
                self._asked = ""

    def adopt(self, branch: int, of: Keeper) -> None:
        """One that `of` has branched, in the same namespace: not to be killed when it becomes a child of this one."""
        self.order(do="adopt", pid=next((name for name, here in of._names.items() if here == branch), branch))

    def order(self, **words: Any) -> None:
        with contextlib.suppress(OSError):
            packets.send(self._control, words)

    def drop(self, names: list[str]) -> None:
        for name in names:
            self.kept.pop(name, None)
        self.order(do="drop", names=names)

    async def weigh(self) -> tuple[int, dict[str, int]]:
        """Bytes all checkpoints hold beyond the live process, and what dropping each alone would free."""
        async with self._one_at_a_time:
            self._weighed = self._loop.create_future()
            self.order(do="weigh")
            try:
                async with asyncio.timeout(_ANSWER):
                    return await asyncio.shield(self._weighed)
            except TimeoutError:
                return 0, {}

    async def status_of(self, pid: int, patience: float = 5.0) -> Exit:
        death = self._deaths.setdefault(pid, self._loop.create_future())
        if self._gone.is_set() and not death.done():
            return Exit()
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(death)
        except TimeoutError:
            return Exit()
        finally:
            self._deaths.pop(pid, None)

    async def close(self) -> None:
        """Everything below it is killed, then it ends: but for the first of a namespace in which branches live on."""
        if self.alive:
            self.order(do="end")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END):
                    await self._ended.wait()
        self._hang_up()
        if self._ended.is_set() and self.branched:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END):
                await self._gone.wait()
            return
        self._kill()
        await wait_killed(self._gone.wait(), self.pid, "The process that keeps a kernel")

    def _kill(self) -> None:
        if not self._gone.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _heard(self) -> None:
        try:
            words, descriptors, _ = packets.receive(self._control)
        except BlockingIOError:
            return
        match words, descriptors:
            case (
                {"live": int(pid)} | {"branched": int(pid)} | {"writing": int(pid)},
                [pidfd],
            ) if self._answer is not None and _ANSWERS.get(self._asked) in words:
                here, writes = _pid_of(pidfd), "writing" in words
                if here or writes:  # a writer may be done already: what it wrote is there
                    self._names |= {} if writes else {pid: here}
                    self.live = here if "live" in words else self.live
                    self._settle(self._answer, (here, pidfd))
                    return
                if not self._answer.done():
                    self._answer.set_exception(OperationFailed("The kernel's process ended at once."))
            case {"failed": str(why), "do": str(order)}, []:
                if self._answer is not None and not self._answer.done() and order == self._asked:
                    self._answer.set_exception(OperationFailed(why))
            case {"gone": str(name)}, []:
                self.kept.pop(name, None)
            case {"weighed": int(total), "own": dict(own)}, []:
                if self._weighed is not None and not self._weighed.done():
                    self._weighed.set_result((total, {str(name): int(size) for name, size in own.items()}))
            case {"died": int(pid), "status": int(status), "peak_kb": int(peak), "oom": oom, "why": why}, []:
                ended = Exit(status=status, peak_bytes=peak * 1024, oom=bool(oom), why=str(why))
                here = self._names.pop(pid, pid)
                death = self._deaths.setdefault(here, self._loop.create_future())
                if not death.done():
                    death.set_result(ended)
            case {"door": int(port)}, [door] if self.door is None:
                with contextlib.suppress(OSError):  # not even a socket
                    self.door = (port, socket.socket(fileno=os.dup(door)))
            case {"ended": _}, []:
                self._ended.set()
            case {}, _:
                self._hang_up()
        for each in descriptors:
            os.close(each)

    def _settle(self, answer: asyncio.Future[tuple[int, int]], value: tuple[int, int]) -> None:
        if answer.done():
            os.close(value[1])  # whoever asked is gone
        else:
            answer.set_result(value)

    def _hang_up(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self.kept.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OperationFailed("The process that kept this kernel ended."))
            self._answer.exception()
        if self._weighed is not None and not self._weighed.done():
            self._weighed.set_result((0, {}))

    def _on_death(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self.ids >= 0:
            os.close(self.ids)
            self.ids = -1
        self._hang_up()
        self._ended.set()
        for death in self._deaths.values():
            if not death.done():
                death.set_result(Exit())
        self._gone.set()


def _pid_of(pidfd: int) -> int:
    """What a process is called here, 0 where it is gone: in a namespace of its own it knows another name."""
    said = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    found = re.search(r"^Pid:\t(\d+)$", said, re.MULTILINE)
    return int(found[1]) if found else 0
