"""The server's end of a worker's capability socket. Each call is answered in a task; closing cancels all tasks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable

from quire.runtimes.events import LoopShare, TimeSlice
from quire.wire import frames, relay
from quire.wire.relay import Answer, Called, GivenUp, Refused

_CHUNK = 1 << 16
_MAX_CALLS = 1_000  # concurrent calls of one process
_MAX_HELD_BYTES = 64 << 20  # limit for calls being answered, and for answers not yet read
_MAX_EXCESS_BYTES = 4 << 20  # answers beyond that before the process is ended; all of them are refusals
_MIN_ANSWER_BYTES = 200  # counted for an answer, whatever its size


class CapabilityCalls:
    """`answer` must not raise, except when it is cancelled. `on_protocol_error` is called when the process breaks the
    protocol."""

    def __init__(
        self,
        sock: socket.socket,
        answer: Callable[[Called], Awaitable[Answer]],
        on_protocol_error: Callable[[str], None],
    ) -> None:
        self._sock = sock
        self._answer = answer
        self._on_protocol_error = on_protocol_error
        self._loop = asyncio.get_running_loop()
        self._loop_share = LoopShare.for_loop(self._loop)
        self._decoder = frames.Decoder(relay.KERNEL_MESSAGES, frames.FROM_CODE)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._held_bytes = 0  # of calls being answered
        self._outgoing: deque[bytes] = deque()  # answers to send
        self._outgoing_bytes = 0
        self._send_task: asyncio.Task[None] | None = None
        self._is_full = False  # calls being answered hold too much memory to accept more
        self._next_turn: asyncio.TimerHandle | None = None  # when more calls are accepted
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._on_bytes)

    @property
    def _is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def close(self) -> None:
        """Cancel all calls; the process is gone."""
        if not self._is_open:
            return
        self._loop.remove_reader(self._sock.fileno())
        if self._next_turn is not None:
            self._next_turn.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
        if self._send_task is not None:
            self._send_task.cancel()
            self._loop.remove_writer(self._sock.fileno())  # before the descriptor number is reused
        self._sock.close()

    def _on_bytes(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._decoder.add(data)
        self._loop.remove_reader(self._sock.fileno())
        self._take_calls()

    def _take_calls(self) -> None:
        """Accept complete calls while there is memory for them and time in this turn of the event loop."""
        self._next_turn = None
        time_slice = TimeSlice()
        try:
            while self._is_open and not self._is_full and not time_slice.is_used_up:
                if (received := self._decoder.take()) is None:
                    self._loop.add_reader(self._sock.fileno(), self._on_bytes)
                    return
                self._take(*received)
        except ValueError as error:  # BadFrame, BadMessage
            self._fail(str(error))
            return
        if self._is_open and not self._is_full:
            self._next_turn = self._loop.call_later(self._loop_share.pause_after(time_slice.spent), self._take_calls)

    def _fail(self, reason: str) -> None:
        self.close()
        self._on_protocol_error(reason)

    def _take(self, message: Called | GivenUp, size: int) -> None:
        if isinstance(message, GivenUp):
            if message.call in self._tasks:
                self._tasks[message.call].cancel()
            return
        if message.call in self._tasks:
            raise ValueError("it used the number of a call under way again")
        if len(self._tasks) >= _MAX_CALLS:
            text = f"{_MAX_CALLS:,} calls of this notebook are under way already. Make fewer at once."
            self._send(Refused(call=message.call, kind="refused", message=text))
            return
        self._held_bytes += size
        self._is_full = self._held_bytes > _MAX_HELD_BYTES
        task = self._loop.create_task(self._answer_call(message, size))
        self._tasks[message.call] = task
        task.add_done_callback(lambda _: self._tasks.pop(message.call))

    async def _answer_call(self, called: Called, size: int) -> None:
        try:
            answer = await self._answer(called)
        finally:
            self._release(size)
        self._send(answer)

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        if self._is_full and self._held_bytes <= _MAX_HELD_BYTES and self._is_open:
            self._is_full = False
            self._next_turn = self._loop.call_later(0, self._take_calls)

    def _send(self, answer: Answer) -> None:
        """Queue an answer. A kernel may send many calls before it reads an answer, within a limit."""
        if not self._is_open:
            return
        data = _encoded(answer)
        if self._outgoing_bytes + len(data) > _MAX_HELD_BYTES:
            data = _encoded(_too_large(answer, f"{_MAX_HELD_BYTES:,} bytes of earlier answers were not taken yet"))
        if self._outgoing_bytes > _MAX_HELD_BYTES + _MAX_EXCESS_BYTES:
            self._fail("it makes calls and does not read the answers")
            return
        self._outgoing.append(data)
        self._outgoing_bytes += len(data) + _MIN_ANSWER_BYTES
        if self._send_task is None:
            self._send_task = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._outgoing:
                data = self._outgoing.popleft()
                with contextlib.suppress(OSError):  # the process has ended
                    await self._loop.sock_sendall(self._sock, data)
                self._outgoing_bytes -= len(data) + _MIN_ANSWER_BYTES
        finally:
            self._send_task = None


def _encoded(answer: Answer) -> bytes:
    try:
        return frames.encode(answer, frames.FROM_SERVER)
    except ValueError as error:
        return frames.encode(_too_large(answer, str(error)))


def _too_large(answer: Answer, reason: str) -> Refused:
    return Refused(call=answer.call, kind="tool", message=f"The call was made, but its answer is too large: {reason}.")
