"""An ASGI app below a tornado server, over real connections: what each side does to the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler, stream_request_body

from quire.frontends.jupyter_extension.asgi_bridge import AsgiExchange

DEADLINE = 60.0
PIECE = b"x" * 65_536


@stream_request_body
class Bridged(RequestHandler):
    """What the extension does, without a Jupyter server around it."""

    def initialize(self, app: ASGIApp, timeout: float) -> None:
        self._exchange = AsgiExchange(self, timeout)
        self._app = app

    def prepare(self) -> None:
        scope: Scope = {"type": "http", "method": self.request.method, "path": self.request.path, "headers": []}
        self._task = asyncio.create_task(self._exchange.run(self._app, scope))

    async def data_received(self, chunk: bytes) -> None:
        await self._exchange.put_body(chunk)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._exchange.client_left()

    def finish(self, *given: Any, set_content_type: str = "", **named: Any) -> Any:
        return super().finish(*given, **named)

    async def post(self) -> None:
        await self._exchange.put_body(None)
        await self._task


class Wire:
    """A client that says and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, text: bytes) -> None:
        self._writer.write(text)
        async with asyncio.timeout(DEADLINE):
            await self._writer.drain()

    async def until(self, text: bytes) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self._reader.readuntil(text)

    async def rest(self) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self._reader.read()

    def leave(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def served(app: ASGIApp, timeout: float = DEADLINE) -> AsyncIterator[Any]:
    """Connects to a server of this app."""
    sock, port = bind_unused_port()
    server = HTTPServer(Application([("/.*", Bridged, {"app": app, "timeout": timeout})]))
    server.add_socket(sock)
    wires: list[Wire] = []

    async def connect(head: bytes) -> Wire:
        wires.append(Wire(*await asyncio.open_connection("127.0.0.1", port, limit=2**16)))
        await wires[-1].say(head)
        return wires[-1]

    try:
        yield connect
    finally:
        server.stop()
        for wire in wires:
            wire.leave()
        await server.close_all_connections()


def post(length: int, more: bytes = b"connection: close\r\n") -> bytes:
    return b"POST / HTTP/1.1\r\nhost: here\r\n" + more + b"content-length: %d\r\n\r\n" % length


async def begin(send: Send, **headers: str) -> None:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})


async def test_body_and_response_pass_the_bridge() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        await begin(send, content_length=str(len(body)), content_type="text/plain")
        await send({"type": "http.response.body", "body": body})
        assert (await receive())["type"] == "http.disconnect"

    async with served(app) as connect:
        wire = await connect(post(200_000))
        await wire.say(b"y" * 200_000)
        answer = await wire.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Type: text/plain" in answer
    assert answer.endswith(b"\r\n\r\n" + b"y" * 200_000)


async def test_pieces_are_sent_as_they_come_in_both_directions() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send, content_type="text/event-stream")
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"].upper(), "more_body": more})

    async with served(app) as connect:
        wire = await connect(post(2))
        await wire.until(b"\r\n\r\n")  # before anything was sent
        await wire.say(b"a")
        await wire.until(b"A\r\n")
        await wire.say(b"b")
        assert await wire.rest() == b"1\r\nB\r\n0\r\n\r\n"


async def test_bodies_stop_when_the_reader_stops() -> None:
    made: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send)
        for number in range(10_000):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            made.append(number)

    async with served(app) as connect:
        wire = await connect(post(0))
        await wire.until(b"\r\n\r\n")
        last = -1
        while last != len(made):  # until it stands still
            last = len(made)
            await asyncio.sleep(0.2)
        assert 0 < last < 1_000

    taken: list[int] = []

    async def idle(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.sleep(DEADLINE)

    async with served(idle) as connect:
        wire = await connect(post(10_000 * len(PIECE)))

        async def pour() -> None:
            for number in range(10_000):
                await wire.say(PIECE)
                taken.append(number)

        pouring = asyncio.create_task(pour())
        last = -1
        while last != len(taken):
            last = len(taken)
            await asyncio.sleep(0.2)
        pouring.cancel()
        assert last < 1_000


async def test_app_is_told_that_its_client_left() -> None:
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await begin(send)
        heard.set_result((await receive())["type"])
        await send({"type": "http.response.body", "body": b"this is not read"})

    async with served(app) as connect:
        wire = await connect(post(0))
        await wire.until(b"\r\n\r\n")
        wire.leave()
        async with asyncio.timeout(DEADLINE):
            assert await heard == "http.disconnect"


async def test_app_is_told_of_a_client_that_leaves_during_its_body() -> None:
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"half"
        heard.set_result((await receive())["type"])

    async with served(app) as connect:
        wire = await connect(post(8))
        await wire.say(b"half")
        await asyncio.sleep(0)
        wire.leave()
        async with asyncio.timeout(DEADLINE):
            assert await heard == "http.disconnect"


async def test_failing_app_returns_500_and_the_server_goes_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["body"] == b"fail":
            raise RuntimeError("on purpose")
        await begin(send, content_length="2")
        await send({"type": "http.response.body", "body": b"ok"})

    async with served(app) as connect:
        wire = await connect(post(4))
        await wire.say(b"fail")
        assert (await wire.rest()).startswith(b"HTTP/1.1 500 ")
        wire = await connect(post(4))
        await wire.say(b"work")
        assert (await wire.rest()).endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("how", ["raises", "returns"])
async def test_incomplete_response_closes_the_connection(how: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if how == "raises":
            raise RuntimeError("on purpose")

    async with served(app) as connect:
        wire = await connect(post(0))
        answer = await wire.rest()
    assert b"half" in answer and b"0\r\n\r\n" not in answer.partition(b"\r\n\r\n")[2]


async def test_client_that_stops_reading_is_disconnected() -> None:
    over = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send)
        for _ in range(10_000):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        over.set()

    async with served(app, timeout=0.2) as connect:
        await connect(post(0))
        async with asyncio.timeout(DEADLINE):
            await over.wait()


async def test_one_connection_carries_several_requests() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = json.dumps({"got": (await receive())["body"].decode()}).encode()
        await begin(send, content_length=str(len(body)))
        await send({"type": "http.response.body", "body": body})

    async with served(app) as connect:
        wire = await connect(post(1, b"") + b"1")
        assert (await wire.until(b"}")).endswith(b'{"got": "1"}')
        await wire.say(post(1, b"") + b"2")
        assert (await wire.until(b"}")).endswith(b'{"got": "2"}')
