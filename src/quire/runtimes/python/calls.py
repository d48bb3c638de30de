"""A live process's relay, the server's end: each call is answered by a task of its own, all end with the process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from quire.wire import frames, relay
from quire.wire.relay import Answer, Called, GivenUp, Refused

_CHUNK = 1 << 16
_TASKS = 1_000  # calls of one process under way
_HELD = 64 << 20  # bytes of calls taken and of answers the process has not read, each


class Calls:
    """`answer` never raises but when it is cancelled; `broken` hears that the process says what is no word of ours."""

    def __init__(
        self, sock: socket.socket, answer: Callable[[Called], Awaitable[Answer]], broken: Callable[[str], None]
    ) -> None:
        self._sock = sock
        self._answer = answer
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._decoder = frames.Decoder(relay.ASKING)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._arriving = 0  # bytes of a call that is not whole yet
        self._held = 0  # bytes of calls under way
        self._unread = 0  # bytes of answers to be sent
        self._paused = False
        self._sending: asyncio.Future[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._on_bytes)

    def close(self) -> None:
        """Cancel what is under way; nobody is left to answer to."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock.fileno())
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
        self._arriving += len(data)
        try:
            for said in self._decoder.feed(data):
                self._heard(said)
        except ValueError as error:  # BadFrame, BadMessage
            self.close()
            self._broken(str(error))

    def _heard(self, said: Called | GivenUp) -> None:
        size, self._arriving = self._arriving, 0
        if isinstance(said, GivenUp):
            if said.call in self._tasks:
                self._tasks[said.call].cancel()
            return
        if said.call in self._tasks:
            raise ValueError("it used the number of a call under way again")
        self._held += size
        task = self._loop.create_task(self._one(said, size, one_too_many=len(self._tasks) >= _TASKS))
        self._tasks[said.call] = task
        task.add_done_callback(lambda _: self._tasks.pop(said.call))
        if self._held > _HELD:
            self._paused = True
            self._loop.remove_reader(self._sock.fileno())

    def _let_go(self, size: int) -> None:
        self._held -= size
        if self._paused and self._held <= _HELD and self._sock.fileno() >= 0:
            self._paused = False
            self._loop.add_reader(self._sock.fileno(), self._on_bytes)

    async def _one(self, called: Called, size: int, *, one_too_many: bool) -> None:
        try:
            if one_too_many:
                answer: Answer = Refused(
                    call=called.call,
                    kind="refused",
                    message=f"{_TASKS:,} calls of this notebook are under way already. Make fewer at once.",
                )
            else:
                answer = await self._answer(called)
        finally:
            self._let_go(size)  # not when the answer is sent: a kernel that still sends reads none
        data = _encoded(answer)
        if self._unread + len(data) > _HELD:
            data = _encoded(_too_much(called, f"{_HELD:,} bytes of earlier answers were not taken yet"))
        self._unread += len(data)
        try:
            async with self._one_at_a_time:
                await self._send(data)
        finally:
            self._unread -= len(data)

    async def _send(self, data: bytes) -> None:
        # half a frame would end the relay: whoever gives up waits until it is out
        if self._sock.fileno() < 0:
            return
        self._sending = sending = asyncio.ensure_future(self._loop.sock_sendall(self._sock, data))
        try:
            await asyncio.wait([sending])
        except asyncio.CancelledError:
            await asyncio.wait([sending])
            raise
        finally:
            self._sending = None
            if sending.done() and not sending.cancelled():
                sending.exception()  # the process is gone


def _encoded(answer: Answer) -> bytes:
    try:
        return frames.encode(answer)
    except ValueError as error:
        return frames.encode(_too_much(answer, str(error)))


def _too_much(answer: Called | Answer, why: str) -> Refused:
    return Refused(call=answer.call, kind="tool", message=f"The call was made, but its answer is too large: {why}.")
