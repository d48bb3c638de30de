"""The kernel's end of the relay: calls out, answers in, numbered, without a thread of its own.

Of the threads that wait for an answer one reads the socket and hands the others theirs; when it leaves, another
takes over. An event loop with calls of its own listens to the socket besides. Whoever reads does so under a lock,
and in the main thread an interrupt waits meanwhile: what was read is delivered whole.
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
_INTERRUPT_CHECK_SECONDS = 0.5  # seconds: an interrupt that comes just before a wait is seen after it
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
    """A thread that waits; `gate` opens when it has an answer, or is to read the socket itself."""

    gate: Any = field(default_factory=threading.Lock)
    answer: Returned | ToolError | None = None
    follows: bool = False  # it waits while another reads; not while it still sends

    def give(self, answer: Returned | ToolError, here: asyncio.AbstractEventLoop | None = None) -> None:
        self.answer = answer
        self.open()

    def open(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is open
            self.gate.release()


@dataclass(eq=False)
class _WaitingTask:
    """A task of an event loop that waits."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Returned]

    def give(self, answer: Returned | ToolError, here: asyncio.AbstractEventLoop | None = None) -> None:
        """`here` is the loop whose turn it is."""
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
    """One for the life of the process; a woken copy connects it anew."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _WaitingThread | _WaitingTask] = {}
        self._listening: dict[asyncio.AbstractEventLoop, int] = {}  # loops, with how many calls
        self._sock: socket.socket | None = None
        self._number = -1  # of the socket, before this was a copy
        self._gone = ""  # why there is no connection
        self._renew()
        os.register_at_fork(after_in_child=self._forked)

    def _renew(self) -> None:
        self._sends = threading.Lock()
        self._reads = threading.Lock()
        self._turns = threading.Lock()  # over who reads
        self._leader: object = None  # who reads: a thread that waits, or a loop whose turn it is
        self._decoder = frames.Decoder(relay.SERVER_MESSAGES)

    def connect(self, descriptor: int) -> None:
        """To a parent, or in a woken copy to another: what waited since before has no answer there."""
        for waiting in list(self._waiting.values()):
            if isinstance(waiting, _WaitingTask):
                with contextlib.suppress(RuntimeError):  # its loop is closed
                    waiting.set(CapabilityGone(_RESTORED))
        self._waiting.clear()
        self._renew()
        self._sock = packets.socket_from_descriptor(move_high(descriptor))
        self._gone = ""

    def forget_loops(self) -> None:
        """In a woken copy, before any descriptor is opened: its loops listen to a number that is another's soon."""
        for loop in self._listening:
            with contextlib.suppress(Exception):
                loop.remove_reader(self._number)
        self._listening.clear()

    @property
    def descriptors(self) -> list[int]:
        return [self._sock.fileno()] if self._sock is not None else []

    def leave(self) -> None:
        """In a copy: the socket is the original's."""
        if self._sock is not None:
            self._number = self._sock.fileno()
            self._sock.close()
            self._sock, self._gone = None, _OTHER_PROCESS

    def _forked(self) -> None:
        self.leave()
        self._renew()

    # Calls

    def call(self, do: str, **words: Any) -> dict[str, Any]:
        """From any thread; raises a ToolError of the kind that was refused."""
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
        """In an event loop, which goes on meanwhile."""
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
        """Where the answer has not come: nobody waits for it any more."""
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
            except BaseException:  # half a frame may be out
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
        ready = select.poll()  # not select.select: it takes no descriptor over 1,023
        ready.register(self.descriptors[0], select.POLLIN)
        while waiting.answer is None:
            if held:
                self._interrupts.release()
            ready.poll(_INTERRUPT_CHECK_SECONDS * 1000 if held else None)
            self._hold_again(held)
            self._read()

    def _hold_again(self, held: bool) -> None:
        if held:  # else it is not ours to touch
            self._interrupts.held = True

    def _leads(self, reader: object) -> bool:
        with self._turns:
            self._leader = self._leader or reader
            return self._leader is reader

    def _hand_on(self, leaving: object) -> None:
        """Where nobody reads, another that waits is to: this one did, or was to and has its answer or gives up."""
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
            # not beside a thread that reads: it would sleep on, with its answer taken from under it
            if self._leads(loop):
                self._read(loop)
            if self._gone and self._sock is not None:
                loop.remove_reader(self._sock.fileno())
        finally:
            self._hand_on(loop)
            if held:
                self._interrupts.release()

    # What comes

    def _read(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """What lies in the socket, to whom it is for; nothing where another was quicker."""
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
            except BaseException:  # what was read is lost
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
