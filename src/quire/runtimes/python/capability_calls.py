"""A live process's relay, the server's end: each call is answered by a task of its own, all end with the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable

from quire.runtimes.events import LoopShare, Slice
from quire.wire import frames, relay
from quire.wire.relay import Answer, Called, GivenUp, Refused

_CHUNK = 1 << 16
_TASKS = 1_000  # calls of one process under way
_HELD = 64 << 20  # bytes of calls taken and of answers the process has not read, each
_PATIENCE = 4 << 20  # bytes of answers over that, all of them refusals, until the process is given up
_ANSWER_BYTES = 200  # that an answer takes at least


class Calls:
    """`answer` never raises but when it is cancelled; `broken` hears that the process says what is no word of ours."""

    def __init__(
        self, sock: socket.socket, answer: Callable[[Called], Awaitable[Answer]], broken: Callable[[str], None]
    ) -> None:
        self._sock = sock
        self._answer = answer
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._share = LoopShare.of(self._loop)
        self._decoder = frames.Decoder(relay.ASKING, frames.FROM_CODE)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._held = 0  # bytes of calls under way
        self._unread: deque[bytes] = deque()  # answers to be sent
        self._unread_size = 0
        self._sending: asyncio.Task[None] | None = None
        self._full = False  # calls under way hold too much memory to take more
        self._continuing: asyncio.TimerHandle | None = None  # the turn of the loop in which more are taken
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._on_bytes)

    @property
    def _is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def close(self) -> None:
        """Cancel what is under way; nobody is left to answer to."""
        if not self._is_open:
            return
        self._loop.remove_reader(self._sock.fileno())
        if self._continuing is not None:
            self._continuing.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
        if self._sending is not None:
            self._sending.cancel()
            self._loop.remove_writer(self._sock.fileno())  # before the number is another's
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
        """Take the calls that arrived whole: as many as there is room for, and time in this turn of the loop."""
        self._continuing = None
        taking = Slice()
        try:
            while self._is_open and not self._full and not taking.is_over:
                if (taken := self._decoder.take()) is None:
                    self._loop.add_reader(self._sock.fileno(), self._on_bytes)
                    return
                self._take(*taken)
        except ValueError as error:  # BadFrame, BadMessage
            self._distrust(str(error))
            return
        if self._is_open and not self._full:
            self._continuing = self._loop.call_later(self._share.rest_after(taking.spent), self._take_calls)

    def _distrust(self, why: str) -> None:
        self.close()
        self._broken(why)

    def _take(self, said: Called | GivenUp, size: int) -> None:
        if isinstance(said, GivenUp):
            if said.call in self._tasks:
                self._tasks[said.call].cancel()
            return
        if said.call in self._tasks:
            raise ValueError("it used the number of a call under way again")
        if len(self._tasks) >= _TASKS:
            words = f"{_TASKS:,} calls of this notebook are under way already. Make fewer at once."
            self._send(Refused(call=said.call, kind="refused", message=words))
            return
        self._held += size
        self._full = self._held > _HELD
        task = self._loop.create_task(self._one(said, size))
        self._tasks[said.call] = task
        task.add_done_callback(lambda _: self._tasks.pop(said.call))

    async def _one(self, called: Called, size: int) -> None:
        try:
            answer = await self._answer(called)
        finally:
            self._let_go(size)
        self._send(answer)

    def _let_go(self, size: int) -> None:
        self._held -= size
        if self._full and self._held <= _HELD and self._is_open:
            self._full = False
            self._continuing = self._loop.call_later(0, self._take_calls)

    def _send(self, answer: Answer) -> None:
        """Now or soon. A kernel may send many calls before it reads an answer, but not without end."""
        if not self._is_open:
            return
        data = _encoded(answer)
        if self._unread_size + len(data) > _HELD:
            data = _encoded(_too_much(answer, f"{_HELD:,} bytes of earlier answers were not taken yet"))
        if self._unread_size > _HELD + _PATIENCE:
            self._distrust("it makes calls and does not read the answers")
            return
        self._unread.append(data)
        self._unread_size += len(data) + _ANSWER_BYTES
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._unread:
                data = self._unread.popleft()
                with contextlib.suppress(OSError):  # the process is gone
                    await self._loop.sock_sendall(self._sock, data)
                self._unread_size -= len(data) + _ANSWER_BYTES
        finally:
            self._sending = None


def _encoded(answer: Answer) -> bytes:
    try:
        return frames.encode(answer, frames.FROM_SERVER)
    except ValueError as error:
        return frames.encode(_too_much(answer, str(error)))


def _too_much(answer: Answer, why: str) -> Refused:
    return Refused(call=answer.call, kind="tool", message=f"The call was made, but its answer is too large: {why}.")
