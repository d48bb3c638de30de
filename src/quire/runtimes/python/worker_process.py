"""A kernel's live process. It sends frames on a socket and prints into pipes; worker/channel.py has the details."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from quire.core.errors import OperationFailed
from quire.core.model import Died
from quire.runtimes.events import DeferredEvents, EventQueue, LatestCapabilities, LoopShare, TimeSlice
from quire.runtimes.python import pipes
from quire.runtimes.python.capability_calls import CapabilityCalls
from quire.runtimes.python.exit_reason import ProcessExit, connection_closed, exit_reason, protocol_error
from quire.runtimes.python.kill_wait import wait_killed
from quire.runtimes.python.supervisor import SupervisorClient
from quire.wire import frames, messages, relay
from quire.wire.messages import (
    BadMessage,
    Checkpoint,
    Checkpointed,
    Enter,
    Entered,
    Event,
    Finished,
    Inspect,
    Inspected,
    Load,
    Loaded,
    Native,
    Page,
    Paged,
    Printed,
    Read,
    Value,
)

_CHUNK = 1 << 20
_OUTPUT_DELAY_S = 0.01  # before the server reads the pipes itself
_MIN_EVENT_BYTES = 500  # counted for an event, whatever its size
_EXIT_DELAY_S = 0.1  # between the end of a process's socket and its exit
_START_TIMEOUT_S = 30.0  # for a new worker to be ready
_WAKE_TIMEOUT_S = 10.0  # for a checkpoint to be ready
_ANSWERS = (Entered, Inspected, Value, Paged, Checkpointed, Loaded, Died)


class CapabilityHandler(Protocol):
    """Answers capability calls and receives the capabilities that the code defines."""

    async def call(self, called: relay.Called) -> relay.Answer: ...

    def native(self, capabilities: list[dict[str, Any]]) -> None: ...


class WorkerProcess:
    def __init__(self, supervisor: SupervisorClient, handler: CapabilityHandler) -> None:
        self._supervisor = supervisor
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._events = EventQueue()
        self._share = LoopShare.for_loop(self._loop)
        self._native_capabilities = LatestCapabilities(handler.native)
        self._current_run: str | None = None
        self._decoder = frames.Decoder(messages.EVENTS, frames.FROM_CODE)
        self._reading = False  # the socket; not while received messages are pending
        self._queue_is_full = False  # messages are pending until there is room
        self._next_turn: asyncio.Handle | None = None  # when pending messages are taken
        self._unqueued_output: list[Printed] = []  # read from the pipes, and later than pending messages
        self._failure: Died | None = None
        self._closed = asyncio.Event()
        self._fetch_timer: asyncio.TimerHandle | None = None
        self._exit_task: asyncio.Task[None] | None = None
        self._send_tasks: set[asyncio.Task[None]] = set()  # the rest of messages that were not sent at once
        self._interrupts_sent = 0
        self._pid = 0
        self._pidfd = -1

    @classmethod
    async def start(
        cls, supervisor: SupervisorClient, handler: CapabilityHandler, order: dict[str, Any], extra: Sequence[int] = ()
    ) -> WorkerProcess:
        """Start or wake a process, and wait until it is ready. It gets the extra descriptors."""
        worker = cls(supervisor, handler)
        limit = _START_TIMEOUT_S if order["do"] == "start" else _WAKE_TIMEOUT_S
        try:
            async with asyncio.timeout(limit):
                await worker._launch(order, extra)
                first = await worker.next_event()
        except TimeoutError:
            await worker.close()
            problem = "A kernel did not start" if order["do"] == "start" else "A checkpoint did not wake"
            raise OperationFailed(f"{problem} within {limit:g} s; the machine may be overloaded. Call again.") from None
        except BaseException:
            await worker.close()
            raise
        if not isinstance(first, messages.Ready):
            text = worker._failure_text(first)
            await worker.close()
            raise OperationFailed(f"A kernel could not start: {text}")
        return worker

    async def _launch(self, order: dict[str, Any], extra_descriptors: Sequence[int]) -> None:
        server_end, worker_end = socket.socketpair()
        relay_server_end, relay_end = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        lock = os.memfd_create("quire-lock")
        self._sock, self._lock = server_end, lock
        self._calls = CapabilityCalls(relay_server_end, self._handler.call, self._fail)
        self._pipes = (("stdout", out_read), ("stderr", err_read))
        server_end.setblocking(False)
        for _, pipe in self._pipes:
            pipes.prepare_pipe(pipe)
        try:
            descriptors = [worker_end.fileno(), out_write, out_read, err_write, err_read, lock, relay_end.fileno()]
            self._pid, self._pidfd = await self._supervisor.launch(order, [*descriptors, *extra_descriptors])
        except BaseException:
            self._close_descriptors()
            raise
        finally:
            worker_end.close()
            relay_end.close()
            os.close(out_write)
            os.close(err_write)
        self._loop.add_reader(self._pidfd, self._on_exit)
        self._read_frames()
        self._watch_pipes()

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def alive(self) -> bool:
        return not self._closed.is_set() and self._failure is None and self._exit_task is None

    async def run(self, run: messages.Run) -> None:
        self._current_run = run.run
        await self.send(run)

    async def next_event(self) -> Event | Died:
        return (await self._take_event())[0]

    async def _take_event(self) -> tuple[Event | Died, int]:
        await self._events.wait()
        if isinstance(died := self._events.peek(), Died):
            return died, 0  # it stays in the queue for the next caller
        received = self._events.take()
        if self._queue_is_full and not self._events.is_full and self._exit_task is None:
            self._queue_is_full = False
            self._next_turn = self._loop.call_soon(self._take_frames)
        return received

    async def enter(self, request: Enter, trees: Sequence[int]) -> None:
        """Have the worker enter its workspace and sandbox, with these mounts. Raises OperationFailed."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._sock, [frames.encode(request, frames.FROM_SERVER)], trees)
        answer = await self._wait_answer()
        reason = answer.why_not if isinstance(answer, Entered) else self._failure_text(answer)
        if reason:
            raise OperationFailed(f"A kernel could not start: {reason}")

    async def ask(self, question: Inspect | Read | Page | Checkpoint | Load) -> Event | Died:
        await self.send(question)
        return await self._wait_answer()

    async def _wait_answer(self) -> Event | Died:
        """Output received meanwhile belongs to the next run. All of it is read: a thread that waits to print may hold a
        lock that the worker needs to answer."""
        deferred = DeferredEvents()
        while not isinstance((received := await self._take_event())[0], _ANSWERS):
            deferred.add(*received)
        self._events.put_first(deferred.events())
        return received[0]

    def interrupt(self) -> None:
        if self._closed.is_set():
            return
        self._interrupts_sent += 1  # before the signal, see worker/processes/fork_interrupts.py
        os.pwrite(self._lock, self._interrupts_sent.to_bytes(messages.INTERRUPTS_BYTES, "little"), 0)
        try:
            os.killpg(self._pid, signal.SIGINT)
        except (ProcessLookupError, PermissionError):  # the cell changed its process group
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGINT)

    async def close(self) -> None:
        """Kill the process; wait until it is reaped and every descriptor is closed."""
        if self._pidfd < 0:
            return
        self._kill()
        await wait_killed(self._closed.wait(), self._pid, "A kernel's process")

    async def send(self, message: Any) -> None:
        data = frames.encode(message, frames.FROM_SERVER)
        with contextlib.suppress(OSError):  # the pidfd reports a dead worker
            sent = 0
            with contextlib.suppress(BlockingIOError):
                sent = self._sock.send(data)
            if sent < len(data):
                sending = self._loop.create_task(self._loop.sock_sendall(self._sock, memoryview(data)[sent:]))
                self._send_tasks.add(sending)
                sending.add_done_callback(self._send_tasks.discard)
                await asyncio.wait([sending])
                sending.cancelled() or sending.exception()  # retrieved, so that asyncio logs nothing

    def write_notice(self, text: str) -> None:
        """Add a line to what the code writes to stderr."""
        if self.alive and not self._events.is_full:
            self._queue_printed(Printed(stream="stderr", data=text.encode()))

    def _queue_printed(self, printed: Printed) -> None:
        self._events.put(printed, _MIN_EVENT_BYTES + len(printed.data))

    def _read_frames(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self._on_frames)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock.fileno())

    def _on_frames(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stop_reading()
            # a dying process closes its socket shortly before its pidfd is ready
            self._loop.call_later(_EXIT_DELAY_S, self._on_hang_up)
            return
        self._decoder.add(data)
        self._take_frames()

    def _take_frames(self) -> None:
        """Take complete messages while there is room for them and time in this turn of the event loop."""
        self._next_turn = None
        time_slice = TimeSlice()
        while not self._events.is_full and not time_slice.is_used_up:
            if not self._take_frame():
                self._queue_output()
                return
        self._stop_reading()
        if time_slice.is_used_up:
            self._next_turn = self._loop.call_later(self._share.pause_after(time_slice.spent), self._take_frames)
        else:
            self._queue_is_full = True

    def _take_frame(self) -> bool:
        """Take one message. False if there is no complete one."""
        if self._failure is not None:
            return False
        try:
            if (received := self._decoder.take()) is not None:
                self._queue_event(*received)
                return True
        except ValueError as error:  # BadFrame, BadMessage
            self._fail(str(error))
        return False

    def _queue_output(self) -> None:
        for printed in self._unqueued_output:
            self._queue_printed(printed)
        self._unqueued_output = []
        if self._failure is None and self._exit_task is None:
            self._read_frames()
        else:
            self._stop_reading()

    def _queue_event(self, event: Event, size: int) -> None:
        if isinstance(event, Native):
            self._native_capabilities.put(event.capabilities)
            return
        if isinstance(event, Finished):
            if event.run != self._current_run:
                raise BadMessage("it ended a run that does not run")
            self._current_run = None
            self._native_capabilities.flush()
        self._events.put(event, _MIN_EVENT_BYTES + size)

    def _on_hang_up(self) -> None:
        """The worker closed its socket and still runs: kill it."""
        if self._exit_task is None and not self._closed.is_set():
            self._failure = self._failure or connection_closed()
            self._kill()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or protocol_error(reason)
        self._kill()

    # Output while the worker sends nothing

    def _watch_pipes(self) -> None:
        self._fetch_timer = None
        if self._closed.is_set():
            return
        for _, pipe in self._pipes:
            self._loop.add_reader(pipe, self._on_output)

    def _on_output(self) -> None:
        # later: the output of a quick cell comes with its last frame
        for _, pipe in self._pipes:
            self._loop.remove_reader(pipe)
        self._fetch_timer = self._loop.call_later(_OUTPUT_DELAY_S, self._fetch_output)

    def _fetch_output(self) -> None:
        if self._reading and not self._events.is_full:
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass  # the worker is sending, and sends the output itself
            else:
                try:
                    self._read_output()
                finally:
                    fcntl.lockf(self._lock, fcntl.LOCK_UN)
                self._take_frames()
        self._watch_pipes()

    def _read_output(self) -> None:
        """With the lock held, take the frames sent so far, then the pipes' content. Only what is there now: a process
        that ignores the lock could write without end."""
        printed = [Printed(stream=name, data=data) for name, pipe in self._pipes if (data := pipes.read(pipe))]
        with contextlib.suppress(OSError):
            if sent := pipes.unread_bytes(self._sock):
                self._decoder.add(self._sock.recv(sent))
        self._unqueued_output += printed

    # Exit

    def _kill(self) -> None:
        if self._pidfd < 0 or self._closed.is_set():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _on_exit(self) -> None:
        self._calls.close()
        self._loop.remove_reader(self._pidfd)
        self._exit_task = self._loop.create_task(self._finish_exit())

    async def _finish_exit(self) -> None:
        self._stop_reading()
        for _, pipe in self._pipes:
            self._loop.remove_reader(pipe)
        for handle in (self._fetch_timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        process_exit = ProcessExit()
        try:
            process_exit = await self._supervisor.exit_status(self._pid)  # what the cell started has ended, too
            self._read_output()
            await self._read_remaining()
        finally:  # `close` waits for this
            reason = self._failure or exit_reason(process_exit)
            self._close_descriptors()
            self._native_capabilities.close()
            self._events.put(reason, _MIN_EVENT_BYTES)
            self._closed.set()

    async def _read_remaining(self) -> None:
        """Read what it sent before it ended: at most one frame and a socket's buffer."""
        time_slice = TimeSlice()
        while self._take_frame():
            if time_slice.is_used_up:
                await asyncio.sleep(self._share.pause_after(time_slice.spent))
                time_slice = TimeSlice()
        self._queue_output()

    def _close_descriptors(self) -> None:
        self._calls.close()
        for task in list(self._send_tasks):
            task.cancel()
        if (
            self._sock.fileno() >= 0
        ):  # before the descriptor is closed, or asyncio would miss events of the next one with its number
            self._loop.remove_writer(self._sock.fileno())
        for descriptor in (self._pidfd, self._lock, *(pipe for _, pipe in self._pipes)):
            if descriptor >= 0:
                os.close(descriptor)
        self._sock.close()

    def _failure_text(self, first: Event | Died) -> str:
        printed = b"".join(event.data for event in [first, *self._events] if isinstance(event, Printed))
        died = next((event.reason for event in [first, *self._events] if isinstance(event, Died)), "")
        return " ".join(filter(None, [printed.decode("utf-8", "replace").strip(), died]))
