"""The server's connection to a supervisor: send orders, receive reports on checkpoints and exits."""

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
from quire.runtimes.python.exit_reason import ProcessExit
from quire.runtimes.python.kill_wait import wait_killed
from quire.wire import packets

_CLOSE_TIMEOUT_S = 3.0  # for a supervisor to kill its processes, before it is killed itself
_ANSWER_TIMEOUT_S = 15.0
_ANSWER_KEYS = {"start": "live", "wake": "live", "branch": "branched", "write": "writing"}  # key of each order's answer


class SupervisorClient:
    """The connection to the supervisor of one kernel. Its messages are checked, since a cell may have found the socket.
    Processes are identified by the pidfds it passes, not by the pids it reports."""

    def __init__(self, control: socket.socket, pidfd: int, user_namespace: int = -1) -> None:
        self._control = control
        self._pidfd = pidfd
        self.pid = _pid_of(pidfd)
        self.user_namespace = user_namespace  # descriptor of its user namespace, or -1
        self.proxy_listener: tuple[int, socket.socket] | None = None  # its loopback port and the listening socket
        self._local_pids: dict[int, int] = {}  # pid in its namespace to pid here
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._request_lock = asyncio.Lock()  # for orders that are answered
        self._pending_order = ""  # the kind of the order that awaits an answer
        self._answer: asyncio.Future[tuple[int, int]] | None = None  # pid and pidfd
        self._measurement: asyncio.Future[tuple[int, dict[str, int]]] | None = None
        self._exits: dict[int, asyncio.Future[ProcessExit]] = {}
        self.checkpoints: dict[str, ForkReport] = {}  # oldest first
        self.worker_pid = 0  # of the live process
        self._has_branches = False  # in its namespaces
        self._is_closing = False
        self._loop.add_reader(control.fileno(), self._on_message)
        self._loop.add_reader(pidfd, self._on_exit)

    @property
    def alive(self) -> bool:
        return not self._exited.is_set() and self._control.fileno() >= 0 and not self._has_ended()

    def _has_ended(self) -> bool:
        """Ask Linux: the event loop is notified later, and a run started meanwhile would be lost."""
        ready = select.poll()
        ready.register(self._pidfd, select.POLLIN)
        return bool(ready.poll(0))

    async def launch(self, order: dict[str, Any], descriptors: list[int]) -> tuple[int, int]:
        """Start, wake, branch or write. Returns the new process's pid, and a pidfd that the caller must close."""
        async with self._request_lock:
            answer = self._answer = self._loop.create_future()
            self._pending_order = order["do"]
            try:
                packets.send(self._control, order, descriptors)
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    launched: tuple[int, int] = await asyncio.shield(answer)
                self._has_branches |= order["do"] == "branch"
                return launched
            except asyncio.CancelledError:
                if answer.done() and answer.exception() is None:
                    os.close(answer.result()[1])  # the caller is gone
                raise
            except TimeoutError as error:
                if order["do"] != "write" and not self._is_closing:  # a snapshot is not worth the kernel
                    self._kill()  # it does not answer, so its checkpoints cannot be used
                raise OperationFailed("The kernel's supervisor does not answer.") from error
            except OSError as error:
                if not self._is_closing:  # then branches may live in its namespaces
                    self._kill()
                raise OperationFailed(f"The kernel's supervisor cannot be reached ({error.strerror}).") from error
            finally:
                self._pending_order = ""

    def adopt(self, branch: int, parent: SupervisorClient) -> None:
        """Keep a branch of `parent`, in the same namespace, alive when it becomes a child of this supervisor."""
        pids = (pid for pid, local_pid in parent._local_pids.items() if local_pid == branch)
        self.send_order(do="adopt", pid=next(pids, branch))
        self._has_branches = True

    def send_order(self, **fields: Any) -> None:
        with contextlib.suppress(OSError):
            packets.send(self._control, fields)

    def drop_checkpoints(self, names: list[str]) -> None:
        for name in names:
            self.checkpoints.pop(name, None)
        self.send_order(do="drop", names=names)

    async def measure_checkpoints(self) -> tuple[int, dict[str, int]]:
        """Bytes that all checkpoints hold beyond the live process, and what dropping each would free."""
        async with self._request_lock:
            self._measurement = self._loop.create_future()
            self.send_order(do="measure")
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    return await asyncio.shield(self._measurement)
            except TimeoutError:
                return 0, {}

    async def exit_status(self, pid: int, timeout_s: float = 5.0) -> ProcessExit:
        exit_future = self._exits.setdefault(pid, self._loop.create_future())
        if self._exited.is_set() and not exit_future.done():
            return ProcessExit()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(exit_future)
        except TimeoutError:
            return ProcessExit()
        finally:
            self._exits.pop(pid, None)

    async def close(self) -> None:
        """Have it kill its processes and end. The first process of a namespace stays while branches live in it."""
        self._is_closing = True
        if self.alive:
            self.send_order(do="end")
            # killing the first process of a namespace ends the branches in it
            timeout = _ANSWER_TIMEOUT_S if self._has_branches else _CLOSE_TIMEOUT_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._ended.wait()
        self._disconnect()
        if self._ended.is_set() and self._has_branches:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._exited.wait()
            return
        self._kill()
        await wait_killed(self._exited.wait(), self.pid, "A kernel's supervisor process")

    def _kill(self) -> None:
        if not self._exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _on_message(self) -> None:
        try:
            message, descriptors, _ = packets.receive(self._control)
        except BlockingIOError:
            return
        match message, descriptors:
            case (
                {"live": int(pid)} | {"branched": int(pid)} | {"writing": int(pid)},
                [pidfd],
            ) if self._answer is not None and _ANSWER_KEYS.get(self._pending_order) in message:
                local_pid, is_writer = _pid_of(pidfd), "writing" in message
                if local_pid or is_writer:  # a writer may have ended already: its output is complete
                    self._local_pids |= {} if is_writer else {pid: local_pid}
                    self.worker_pid = local_pid if "live" in message else self.worker_pid
                    self._set_answer(self._answer, (local_pid, pidfd))
                    return
                if not self._answer.done():
                    self._answer.set_exception(OperationFailed("The kernel's process ended at once."))
            case {"failed": str(why), "do": str(order)}, []:
                if self._answer is not None and not self._answer.done() and order == self._pending_order:
                    self._answer.set_exception(OperationFailed(why))
            case {"gone": str(name)}, []:
                self.checkpoints.pop(name, None)
            case {"measured": int(total), "own": dict(own)}, []:
                if self._measurement is not None and not self._measurement.done():
                    self._measurement.set_result((total, {str(name): int(size) for name, size in own.items()}))
            case {"died": int(pid), "status": int(status), "peak_kb": int(peak), "oom": oom, "why": why}, []:
                process_exit = ProcessExit(status=status, peak_bytes=peak * 1024, oom=bool(oom), why=str(why))
                local_pid = self._local_pids.pop(pid, pid)
                exit_future = self._exits.setdefault(local_pid, self._loop.create_future())
                if not exit_future.done():
                    exit_future.set_result(process_exit)
            case {"proxy_port": int(port)}, [listener] if self.proxy_listener is None:
                with contextlib.suppress(OSError):  # not a socket
                    self.proxy_listener = (port, socket.socket(fileno=os.dup(listener)))
            case {"ended": _}, []:
                self._ended.set()
            case {}, _:
                self._disconnect()
        for descriptor in descriptors:
            os.close(descriptor)

    def _set_answer(self, answer: asyncio.Future[tuple[int, int]], value: tuple[int, int]) -> None:
        if answer.done():
            os.close(value[1])  # the caller is gone
        else:
            answer.set_result(value)

    def _disconnect(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self.checkpoints.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OperationFailed("The kernel's supervisor ended."))
            self._answer.exception()
        if self._measurement is not None and not self._measurement.done():
            self._measurement.set_result((0, {}))

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self.user_namespace >= 0:
            os.close(self.user_namespace)
            self.user_namespace = -1
        self._disconnect()
        self._ended.set()
        for exit_future in self._exits.values():
            if not exit_future.done():
                exit_future.set_result(ProcessExit())
        self._exited.set()


def _pid_of(pidfd: int) -> int:
    """The pid in this namespace; 0 if the process is gone."""
    text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    match = re.search(r"^Pid:\t(\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
