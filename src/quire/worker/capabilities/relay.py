"""The client of the relay in the kernel: numbered calls and answers, without a thread of its own.

One of the waiting threads, the leader, reads the socket and hands answers to the others; when it is done, another one
leads. Event loops with calls listen to the socket too. Reading needs a lock, and in the main thread interrupts are
held meanwhile, so that answers are delivered complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

from quire.wire import frames, packets, relay
from quire.wire.messages import is_shallow
from quire.wire.relay import Answer, Called, GivenUp, Refused, Returned
from quire.worker.capabilities import errors
from quire.worker.capabilities.errors import CapabilityGone, ToolError
from quire.worker.channel import move_high
from quire.worker.execution.interrupts import Interrupts

_RECEIVE_BYTES = 1 << 20
_INTERRUPT_CHECK_SECONDS = 0.5  # an interrupt just before a wait is noticed after it
_OTHER_PROCESS = (
    "Capabilities are called from the notebook's own process, not from processes it started. "
    "Call from the notebook, where threads work too, and hand the result over."
)
_RESTORED = "The kernel was put back to an earlier state while this call was under way. Call again."
_DISCONNECTED = "The connection to the server that relays calls ended."
_INTERRUPTED = "A call was torn off while it was sent or answered."
_HINT = "Restart the kernel to have it again."


@dataclass(eq=False)
class _WaitingThread:
    """A waiting thread; `gate` opens when it has an answer or has to read the socket itself."""

    gate: Any = field(default_factory=threading.Lock)
    answer: Returned | ToolError | None = None
    follows: bool = False  # it waits while another thread reads

    def give(self, answer: Returned | ToolError, here: asyncio.AbstractEventLoop | None = None) -> None:
        self.answer = answer
        self.open()

    def open(self) -> None:
        with contextlib.suppress(RuntimeError):  # already open
            self.gate.release()


@dataclass(eq=False)
class _WaitingTask:
    """A waiting task of an event loop."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Returned]

    def give(self, answer: Returned | ToolError, here: asyncio.AbstractEventLoop | None = None) -> None:
        """`here` is the running loop."""
        if here is self.loop:
            self.set(answer)
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(self.set, answer)

    def set(self, answer: Returned | ToolError) -> None:
        if self.future.done():
            return
        if isinstance(answer, Returned):
            self.future.set_result(answer)
        else:
            self.future.set_exception(answer)


class Relay:
    """One for each process; a woken copy connects again."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _WaitingThread | _WaitingTask] = {}
        self._listening: dict[asyncio.AbstractEventLoop, int] = {}  # number of calls by loop
        self._sock: socket.socket | None = None
        self._number = -1  # descriptor of the socket before the fork
        self._gone = ""  # why it is not connected
        self._renew()
        os.register_at_fork(after_in_child=self._forked)

    def _renew(self) -> None:
        self._sends = threading.Lock()
        self._reads = threading.Lock()
        self._turns = threading.Lock()  # guards `_leader`
        self._leader: object = None  # the waiting thread or loop that reads
        self._decoder = frames.Decoder(relay.SERVER_MESSAGES)

    def connect(self, descriptor: int) -> None:
        """Connect to the server. Calls that waited before a restore fail."""
        for waiting in list(self._waiting.values()):
            if isinstance(waiting, _WaitingTask):
                with contextlib.suppress(RuntimeError):  # its loop is closed
                    waiting.set(CapabilityGone(_RESTORED))
        self._waiting.clear()
        self._renew()
        self._sock = packets.socket_from_descriptor(move_high(descriptor))
        self._gone = ""

    def forget_loops(self) -> None:
        """In a woken copy, before descriptors are opened: loops still watch a descriptor that will be reused."""
        for loop in self._listening:
            with contextlib.suppress(Exception):
                loop.remove_reader(self._number)
        self._listening.clear()

    @property
    def descriptors(self) -> list[int]:
        return [self._sock.fileno()] if self._sock is not None else []

    def leave(self) -> None:
        """In a fork: close the socket, which belongs to the original."""
        if self._sock is not None:
            self._number = self._sock.fileno()
            self._sock.close()
            self._sock, self._gone = None, _OTHER_PROCESS

    def _forked(self) -> None:
        self.leave()
        self._renew()

    # Calls

    def call(self, do: str, **words: Any) -> dict[str, Any]:
        """Call from any thread. Raises a ToolError if the call fails."""
        waiting = _WaitingThread()
        waiting.gate.acquire()
        number = next(self._numbers)
        frame = self._frame(number, do, words)
        held = self._interrupts.hold()
        try:
            self._waiting[number] = waiting
            self._send(frame)
            answer = self._wait(waiting, held)
        except BaseException:
            self._hold_again(held)
            self._give_up(number)
            raise
        finally:
            self._waiting.pop(number, None)
            self._hand_on(waiting)
            if held:
                self._interrupts.release()
        if isinstance(answer, Returned):
            return answer.value
        raise answer

    async def call_async(self, do: str, **words: Any) -> dict[str, Any]:
        """Call from an event loop without blocking it."""
        loop = asyncio.get_running_loop()
        task = _WaitingTask(loop, loop.create_future())
        number = next(self._numbers)
        frame = self._frame(number, do, words)
        self._waiting[number] = task
        try:
            self._listen(loop)
            self._send_held(frame)
            return (await task.future).value
        except BaseException:
            self._give_up(number)
            raise
        finally:
            self._waiting.pop(number, None)
            self._unlisten(loop)

    def _frame(self, number: int, do: str, words: dict[str, Any]) -> bytes:
        self._check()
        if not is_shallow(words.get("given", {})):
            raise ValueError("The arguments are nested too deeply to be sent: 50 levels are the most.")
        try:
            return frames.encode(Called(call=number, do=do, **words))
        except frames.BadFrame:
            raise ValueError(
                f"The arguments are too large to be sent: {frames.FROM_CODE.parts:,} bytes of text and "
                f"{frames.FROM_CODE.values:,} values are the most. "
                "Write the data to a file that the tool can read, or call with parts of it."
            ) from None

    def _check(self) -> None:
        if self._sock is None or self._gone:
            raise CapabilityGone(self._gone or "This kernel has no way to call capabilities.")

    def _give_up(self, number: int) -> None:
        """Tell the server that the caller stopped waiting, if there is no answer yet."""
        if self._waiting.pop(number, None) is not None and not self._gone:
            with contextlib.suppress(OSError, ToolError):
                self._send_held(frames.encode(GivenUp(call=number)))

    def _send_held(self, frame: bytes) -> None:
        held = self._interrupts.hold()
        try:
            self._send(frame)
        finally:
            if held:
                self._interrupts.release()

    def _send(self, frame: bytes) -> None:
        with self._sends:
            self._check()
            try:
                self._sock.sendall(frame)  # type: ignore[union-attr]
            except OSError:
                self._end(_DISCONNECTED)
                raise CapabilityGone(_DISCONNECTED, hint=_HINT) from None
            except BaseException:  # part of a frame may have been sent
                self._end(_INTERRUPTED)
                raise

    # Waiting, in a thread

    def _wait(self, waiting: _WaitingThread, held: bool) -> Returned | ToolError:
        while waiting.answer is None:
            if self._leads(waiting):
                try:
                    self._lead(waiting, held)
                finally:
                    self._hold_again(held)
                    self._hand_on(waiting)
            else:
                waiting.follows = True
                if held:
                    self._interrupts.release()
                waiting.gate.acquire(timeout=_INTERRUPT_CHECK_SECONDS if held else -1)
                self._hold_again(held)
        return waiting.answer

    def _lead(self, waiting: _WaitingThread, held: bool) -> None:
        ready = select.poll()  # not select.select, which is limited to descriptors up to 1,023
        ready.register(self.descriptors[0], select.POLLIN)
        while waiting.answer is None:
            if held:
                self._interrupts.release()
            ready.poll(_INTERRUPT_CHECK_SECONDS * 1000 if held else None)
            self._hold_again(held)
            self._read()

    def _hold_again(self, held: bool) -> None:
        if held:  # otherwise another holder controls it
            self._interrupts.held = True

    def _leads(self, reader: object) -> bool:
        with self._turns:
            self._leader = self._leader or reader
            return self._leader is reader

    def _hand_on(self, leaving: object) -> None:
        """Let another waiting thread lead, if no thread or loop reads now."""
        with self._turns:
            if self._leader is leaving:
                self._leader = None
            if self._leader is None:
                for waiting in list(self._waiting.values()):
                    if waiting is not leaving and isinstance(waiting, _WaitingThread) and waiting.follows:
                        waiting.open()
                        break

    # Listening, in an event loop

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._listening:
            loop.add_reader(self.descriptors[0], self._on_readable, loop)
        self._listening[loop] = self._listening.get(loop, 0) + 1

    def _unlisten(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._listening.get(loop, 0) - 1
        if left > 0:
            self._listening[loop] = left
        elif self._listening.pop(loop, None) is not None and self._sock is not None:
            loop.remove_reader(self._sock.fileno())

    def _on_readable(self, loop: asyncio.AbstractEventLoop) -> None:
        held = self._interrupts.hold()
        try:
            # only as leader: a thread in poll() would miss an answer read here
            if self._leads(loop):
                self._read(loop)
            if self._gone and self._sock is not None:
                loop.remove_reader(self._sock.fileno())
        finally:
            self._hand_on(loop)
            if held:
                self._interrupts.release()

    # Reading

    def _read(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Read available answers and deliver them."""
        with self._reads:
            if self._sock is None or self._gone:
                return
            try:
                data = self._sock.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
                found = self._decoder.feed(data) if data else []
            except BlockingIOError:
                return
            except (OSError, ValueError):
                data, found = b"", []
            except BaseException:  # answers may be lost
                self._end(_INTERRUPTED)
                raise
            for answer in found:
                waiting = self._waiting.pop(answer.call, None)
                if waiting is not None:
                    waiting.give(_as_result(answer), here)
            if not data:
                self._end(_DISCONNECTED)

    def _end(self, why: str) -> None:
        self._gone = f"{why} {_HINT}"
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
        with contextlib.suppress(KeyError):
            while True:
                self._waiting.popitem()[1].give(CapabilityGone(why, hint=_HINT))


def _as_result(answer: Answer) -> Returned | ToolError:
    match answer:
        case Returned():
            return answer
        case Refused(kind=kind, message=message, hint=hint):
            return errors.make_error(kind, message, hint)
