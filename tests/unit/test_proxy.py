"""The HTTP proxy of a kernel's network, over real sockets: grants, refusals and limits."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from quire.runtimes.sandbox import proxy as proxies
from quire.runtimes.sandbox.proxy import Proxy
from tests.support.waiting import DEADLINE


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.path}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[int]:
    """A server of the machine's own, by its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Door:
    """A proxy with its door in the machine's own loopback, and what it has refused."""

    def __init__(self, *granted: str) -> None:
        self.refused: list[str] = []
        door = socket.create_server(("127.0.0.1", 0))
        door.setblocking(False)
        self.port = door.getsockname()[1]
        self.proxy = Proxy(door, granted, self.refused.append)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: str | bytes) -> str:
        """All that comes back. An empty request ends at once, without a head that the proxy would wait for."""
        reader, writer = await self.connect()
        writer.write(request.encode() if isinstance(request, str) else request)
        if not request:
            writer.write_eof()
        async with asyncio.timeout(DEADLINE):
            answer = await reader.read()
        writer.close()
        return answer.decode()


@contextlib.asynccontextmanager
async def opened(*granted: str) -> AsyncIterator[Door]:
    door = Door(*granted)
    await door.proxy.open()
    try:
        yield door
    finally:
        door.proxy.close()


async def test_plain_http_to_granted_destination(web: int) -> None:
    async with opened(f"127.0.0.1:{web}") as door:
        answer = await door.ask(
            f"GET http://127.0.0.1:{web}/a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:{web}\r\n"
            "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic secret\r\nConnection: keep-alive\r\n"
            "X-Mine: kept\r\n\r\n"
        )
        assert answer.startswith("HTTP/1.0 200 ") and "\n/a/b?c=d\n" in answer
        assert "X-Mine: kept" in answer and "Connection: close" in answer
        assert "Proxy" not in answer and "secret" not in answer and "keep-alive" not in answer
        assert door.refused == []


async def test_request_body_is_forwarded(web: int) -> None:
    body = b"x" * 300_000
    head = f"POST http://127.0.0.1:{web}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    async with opened(f"127.0.0.1:{web}") as door:
        assert (await door.ask(head.encode() + body)).endswith("x" * 300_000)


async def test_tunnel_to_granted_destination(web: int) -> None:
    async with opened(f"localhost:{web}") as door:
        reader, writer = await door.connect()
        writer.write(f"CONNECT localhost:{web} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"GET /inside HTTP/1.0\r\n\r\n")
        assert b"/inside" in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    "request_line",
    [
        "GET http://other.example:{web}/ HTTP/1.1",
        "GET http://127.0.0.1/ HTTP/1.1",
        "GET http://127.0.0.2:{web}/ HTTP/1.1",
        "GET http://[::1]:{web}/ HTTP/1.1",
        "GET http://127.0.0.1:{web}@other.example/ HTTP/1.1",
        "CONNECT other.example:443 HTTP/1.1",
        "CONNECT 127.0.0.1:22 HTTP/1.1",
        "CONNECT 169.254.169.254:80 HTTP/1.1",
    ],
)
async def test_destination_not_granted_is_refused_by_name(web: int, request_line: str) -> None:
    async with opened(f"127.0.0.1:{web}") as door:
        answer = await door.ask(f"{request_line.format(web=web)}\r\nHost: 127.0.0.1:{web}\r\n\r\n")
        assert (
            answer.startswith("HTTP/1.1 403 ")
            and "may not connect to" in answer
            and "setting `sandbox.network`" in answer
        )
        assert len(door.refused) == 1 and f"may not connect to {door.refused[0]}." in answer


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
async def test_wildcard_grant_excludes_loopback(web: int, host: str) -> None:
    async with opened("*:*") as door:
        answer = await door.ask(f"CONNECT {host}:{web} HTTP/1.1\r\n\r\n")
        assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 502 ")), answer
        if answer.startswith("HTTP/1.1 403 "):
            assert "leads into the server's own network" in answer and len(door.refused) == 1


async def test_granted_name_that_resolves_to_loopback_is_refused(web: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.get_running_loop().getaddrinfo

    async def found(host: Any, port: Any, **given: Any) -> Any:
        return await real("127.0.0.1" if host == "rebound.example" else host, port, **given)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    async with opened("rebound.example:*") as door:
        assert "403 rebound.example leads into" in await door.ask(f"CONNECT rebound.example:{web} HTTP/1.1\r\n\r\n")
        assert door.refused == [f"rebound.example:{web}"]


@pytest.mark.parametrize(
    "head",
    [
        *(
            "GET / HTTP/1.1",
            "hello",
            "GET http:///x HTTP/1.1",
            "GET https://example.org/ HTTP/1.1",
            "CONNECT  HTTP/1.1",
        ),
        *("GET ftp://example.org/ HTTP/1.1", "CONNECT example.org:99999 HTTP/1.1", "CONNECT [::1 HTTP/1.1", ""),
        *("GET http://example.org/a b HTTP/1.1", f"CONNECT {'a' * 300}.org:443 HTTP/1.1"),
    ],
)
async def test_malformed_request_is_answered_with_the_right_form(head: str) -> None:
    async with opened("*") as door:
        answer = await door.ask(f"{head}\r\n\r\n")
        assert answer.startswith("HTTP/1.1 400 ") and "CONNECT host:port" in answer
        assert door.refused == []


async def test_undecodable_head_and_invalid_name_are_refused() -> None:
    async with opened("*") as door:
        assert (await door.ask(b"\xff\xfe\x00 \x80 \x90\r\n\r\n")).startswith("HTTP/1.1 400 ")
        label = "a" * 70
        assert (await door.ask(f"CONNECT {label}.example:80 HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 502 ")


async def test_unreachable_destination_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        port = free.getsockname()[1]
        async with opened(f"127.0.0.1:{port}") as door:
            answer = await door.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 502 127.0.0.1:{port} could not be reached")


async def test_endless_head_is_not_buffered(web: int) -> None:
    async with opened(f"127.0.0.1:{web}") as door:
        reader, writer = await door.connect()
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                writer.write(b"x" * 65536)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
        writer.close()
        assert "200" in await door.ask(f"GET http://127.0.0.1:{web}/ HTTP/1.1\r\n\r\n")  # the next one is served


async def test_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_TIMEOUT_S", 0.05)
    async with opened("*") as door:
        reader, writer = await door.connect()
        writer.write(b"CONNECT exam")
        assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
        writer.close()


async def test_connection_limit(web: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_MAX_CONNECTIONS", 2)
    async with opened(f"127.0.0.1:{web}") as door:
        held = [await door.connect() for _ in range(2)]
        for reader, writer in held:
            writer.write(f"CONNECT 127.0.0.1:{web} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
        assert "503 This notebook has 2 connections open" in await door.ask("")
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(DEADLINE):
            while "503" in await door.ask(""):
                await asyncio.sleep(0.01)
        assert "200" in await door.ask(f"GET http://127.0.0.1:{web}/ HTTP/1.1\r\n\r\n")


async def test_close_ends_open_tunnels() -> None:
    ended = asyncio.Event()

    async def stays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()  # it says nothing and ends only when the other side does
        writer.close()

    async with await asyncio.start_server(stays, "127.0.0.1", 0) as far:
        port = far.sockets[0].getsockname()[1]
        door = Door(f"127.0.0.1:{port}")
        await door.proxy.open()
        reader, writer = await door.connect()
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        door.proxy.close()
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            await ended.wait()
        writer.close()
        with pytest.raises(ConnectionError):
            await door.connect()


async def test_close_without_open_closes_the_socket() -> None:
    door = Door("*")
    door.proxy.close()
    with pytest.raises(ConnectionError):
        await door.connect()
