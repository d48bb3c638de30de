"""Hostile requests over HTTP and stdio: each is answered or cut off, and other clients are not disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import fuzz
from bench.hostile_requests import LEGACY, MODERN, Sent

from tests.support.processes import alive
from tests.support.servers import QUICK, call, http_client, server_environment
from tests.support.waiting import DEADLINE, wait_until

REQUESTS = 2_000
ARENA = 64 * 2**20  # bytes
CALL = {
    "name": "execute",
    "arguments": {"code": "6 * 7", "notebook": "main"},
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    },
}
SOUND = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}).encode()
JSON = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
ERA = b"mcp-protocol-version: " + MODERN.encode() + b"\r\nmcp-method: tools/call\r\nmcp-name: execute\r\n"


def post(body: bytes, more: bytes = JSON + ERA, path: bytes = b"/mcp", method: bytes = b"POST") -> Sent:
    head = method + b" " + path + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n" + more
    return Sent(head + b"content-length: %d\r\n\r\n" % len(body) + body)


@contextlib.contextmanager
def server(data_dir: Path, **settings: Any) -> Iterator[tuple[str, int, int]]:
    """Its address, its port and its process; what it logs goes to a file beside the data."""
    command = [sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", "0"]
    log = data_dir.parent / "log"
    env = server_environment(data_dir, **{**QUICK, **settings})
    with log.open("wb") as file, subprocess.Popen(command, env=env, stderr=file) as process:
        try:
            wait_until(lambda: b"\n" in log.read_bytes() or process.poll() is not None, "it listens")
            url = log.read_text().splitlines()[0].split()[-1]
            yield url, int(url.split(":")[2].split("/")[0]), process.pid
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.terminate()
            process.wait(DEADLINE)


async def answers(port: int) -> None:
    """A sound request is answered as ever."""
    wire = fuzz.Wire(port)
    answer = await wire.send(post(SOUND))
    wire.close()
    assert answer is not None and answer[0] == 200, answer
    assert json.loads(answer[2])["result"]["structuredContent"]["return_value"] == 42


@pytest.fixture(scope="module")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, int, int]]:
    with server(tmp_path_factory.mktemp("hostile") / "data") as running:
        yield running


@pytest.fixture(scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, int, int]]:
    """A server that cuts off slow clients after a second."""
    settings = {"request_timeout": 1, "result_chars": 50_000_000, "max_output_bytes": 50_000_000}
    with server(tmp_path_factory.mktemp("strict") / "data", max_connections=40, **settings) as running:
        yield running


@pytest.mark.soak(sample=True)
async def test_fuzzed_requests_are_all_answered_without_a_fault(data_dir: Path) -> None:
    seen = fuzz.Seen()
    with server(data_dir, requests_per_minute=0) as (url, port, pid):
        await fuzz.pelt(url, REQUESTS, 7, seen)
        assert seen.faults == [] and seen.silent == []
        assert alive(pid)
        await answers(port)
    assert seen.answered >= REQUESTS * 0.9 and seen.statuses[200] > 100 and seen.statuses[400] > 100
    assert "Traceback" not in (data_dir.parent / "log").read_text()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="arenas are glibc's")
async def test_threads_keep_no_memory_of_their_own(patient: tuple[str, int, int]) -> None:
    _, port, pid = patient
    await answers(port)
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    assert arenas(pid) == []


def arenas(pid: int) -> list[int]:
    """Where those beside the first begin: each is 64 MiB, the part in use and after it the rest, which no thread may
    touch."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    parts = [(*(int(end, 16) for end in each[0].split("-")), each[1]) for each in lines]
    return [
        begin
        for (begin, middle, used), (after, end, rest) in itertools.pairwise(parts)
        if (used, rest) == ("rw-p", "---p") and middle == after and begin % ARENA == 0 and end - begin == ARENA
    ]


DEEP = 100_000
REFUSED = {
    "deep": (post(SOUND.replace(b'"6 * 7"', b"[" * DEEP + b"]" * DEEP)), 400),
    "deep and open": (post(b"[" * DEEP), 400),
    "utf-8": (post(SOUND.replace(b"6", b"\xff")), 400),
    "lone surrogate": (post(SOUND.replace(b"6", b"\\udc00")), 400),
    "nan": (post(SOUND.replace(b'"6 * 7"', b"NaN")), 400),
    "infinite": (post(SOUND.replace(b'"6 * 7"', b'"1", "timeout": 1e999')), 400),
    "long number": (post(SOUND.replace(b'"id": 1', b'"id": ' + b"9" * 5000)), 400),
    "batch": (post(b"[" + SOUND + b"," + SOUND + b"]"), 400),
    "older batch": (post(b"[" + SOUND + b"]", JSON), 400),
    "empty": (post(b""), 400),
    "nothing declared": (Sent(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n" + JSON + ERA + b"\r\n"), 400),
    "long": (post(b" " * 5_000_000 + SOUND), 413),
    "declared too long": (
        Sent(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n" + JSON + b"content-length: 999999999\r\n\r\n"),
        413,
    ),
    "path": (post(SOUND, path=b"/nothing"), 404),
    "method": (post(SOUND, method=b"PUT"), 405),
    "type": (post(SOUND, b"content-type: text/plain\r\naccept: application/json, text/event-stream\r\n"), 400),
    "accept": (post(SOUND, b"content-type: application/json\r\naccept: text/html\r\n" + ERA), 406),
    "no http": (Sent(b"\x16\x03\x01\x02\x00 hello\r\n\r\n", closes=True), 400),
    "long head": (post(SOUND, JSON + b"x-long: " + b"a" * 100_000 + b"\r\n"), 400),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_bad_request_is_refused_and_the_next_is_answered(patient: tuple[str, int, int], what: str) -> None:
    request, status = REFUSED[what]
    wire = fuzz.Wire(patient[1])
    answer = await wire.send(request)
    wire.close()
    assert answer is not None and answer[0] == status, answer
    await answers(patient[1])


async def test_a_cell_as_long_as_one_may_be_goes_through_however_it_is_written(
    patient: tuple[str, int, int], data_dir: Path
) -> None:
    code = "x = '" + "é" * 490_000 + "'"
    sound = SOUND.replace(b"6 * 7", json.dumps(code)[1:-1].encode())
    assert len(sound) > 2_900_000
    wire = fuzz.Wire(patient[1])
    answer = await wire.send(post(sound))
    wire.close()
    assert answer is not None and answer[0] == 200, answer
    assert json.loads(answer[2])["result"]["structuredContent"]["state"] == "SUCCESS"
    with server(data_dir, max_request_bytes=10_000_000, max_code_bytes=8_000_000) as (url, _, _):
        async with http_client(url) as client:  # past the SDK's own limit of 4 MiB
            result = await call(client, "execute", code="x = '" + "a" * 6_000_000 + "'\nlen(x)")
            assert result.structured_content["return_value"] == 6_000_000


async def test_slow_clients_are_cut_off_and_others_do_not_wait(strict: tuple[str, int, int]) -> None:
    port = strict[1]
    silent, head, body, trickle = [socket.create_connection(("127.0.0.1", port), DEADLINE) for _ in range(4)]
    head.sendall(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n")
    body.sendall(post(SOUND).data[:-5])
    trickle.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /hea")  # a second one that never ends
    await answers(port)
    said = [await asyncio.to_thread(_until_closed, each) for each in (silent, head, body, trickle)]
    assert [each.split(b" ")[1] for each in said[:3]] == [b"408"] * 3
    assert said[3].startswith(b"HTTP/1.1 200") and b"ok" in said[3]


def _until_closed(sock: socket.socket) -> bytes:
    said = b""
    with sock:
        while piece := sock.recv(65536):
            said += piece
    return said


async def test_a_client_that_stops_reading_is_cut_off(strict: tuple[str, int, int]) -> None:
    _, port, pid = strict
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    wait_until(lambda: _sockets(pid) == 1, "it is connected")
    sock.sendall(post(SOUND.replace(b"6 * 7", b"print('x' * 20_000_000)")).data)
    wait_until(lambda: _sockets(pid) == 0, "its connection is closed")
    sock.close()
    await answers(port)


def _sockets(pid: int) -> int:
    """Connections of TCP that the server has."""
    mine = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            mine.add(descriptor.readlink().name)
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return sum(f"socket:[{line.split()[9]}]" in mine and line.split()[3] != "0A" for line in lines)


async def test_too_many_connections_are_refused_until_one_ends(data_dir: Path) -> None:
    with server(data_dir, max_connections=5) as (_, port, _):
        held = [socket.create_connection(("127.0.0.1", port), DEADLINE) for _ in range(5)]
        held[0].sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await asyncio.to_thread(held[0].recv, 99)).startswith(b"HTTP/1.1 200")
        refused = socket.create_connection(("127.0.0.1", port), DEADLINE)
        said = await asyncio.to_thread(_until_closed, refused)
        assert said.startswith(b"HTTP/1.1 503") and b"5 connections are open" in said and b"max_connections" in said
        for each in held:
            each.close()

        def free() -> bool:
            with socket.create_connection(("127.0.0.1", port), DEADLINE) as again:
                again.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                return again.recv(99).startswith(b"HTTP/1.1 200")

        await asyncio.to_thread(wait_until, free, "there is room again")


async def test_for_one_session_too_many_the_longest_idle_ends(data_dir: Path) -> None:
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()

    async def answered(session: str) -> int:
        wire = fuzz.Wire(port)
        head = JSON + f"mcp-session-id: {session}\r\nmcp-protocol-version: {LEGACY}\r\n".encode()
        answer = await wire.send(post(ping, head))
        wire.close()
        assert answer is not None
        return answer[0]

    with server(data_dir, max_sessions=3) as (_, port, _):
        first, second, third = [await fuzz.session_of(port) for _ in range(3)]
        assert await answered(first) == 200  # so that the second is the longest idle
        fourth = await fuzz.session_of(port)
        assert [await answered(each) for each in (first, second, third, fourth)] == [200, 404, 200, 200]
        at_once = await asyncio.gather(*(fuzz.session_of(port) for _ in range(3)))  # room is made for each of them
        every = (first, third, fourth, *at_once)
        assert [await answered(each) for each in every] == [404, 404, 404, 200, 200, 200]


async def test_a_session_in_use_is_not_closed_for_another(data_dir: Path) -> None:
    with server(data_dir, max_sessions=2) as (url, port, _):
        async with http_client(url, mode="legacy") as client:  # its stream of events is open
            await call(client, "execute", code="x = 1")
            others = [await fuzz.session_of(port) for _ in range(3)]
            assert (await call(client, "execute", code="x")).structured_content["return_value"] == 1
    assert len(set(others)) == 3


LINES = {
    "deep": SOUND.replace(b'"6 * 7"', b"[" * DEEP + b"]" * DEEP),
    "long": SOUND.replace(b"6 * 7", b"x" * 5_000_000),
    "nan": SOUND.replace(b'"6 * 7"', b"NaN"),
    "batch": b"[" + SOUND + b"]",
    "nul": b"\x00" * 1000,
    "utf-8": b"\xff" * 1000,
    "number": SOUND.replace(b'"id": 1', b'"id": ' + b"9" * 5000),
    "answer to nothing": b'{"jsonrpc": "2.0", "id": 77, "result": {}}',
    "bad answer to nothing": b'{"jsonrpc": "2.0", "id": 77, "result": 5}',
    "wrong types": b'{"jsonrpc": 2, "id": [], "method": {}, "params": 5}',
}


LONG = "x" * 5_000_000
CUT = {
    "id first": {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": LONG}},
    "id last": {"method": "tools/call", "params": {"id": 5, "name": LONG}, "jsonrpc": "2.0", "id": "seven"},
}
UNREADABLE = {  # what is said of each, and which id it names
    "deep": (-32700, None),
    "long": (-32600, 1),
    "batch": (-32600, None),
    "nul": (-32700, None),
    "utf-8": (-32700, None),
    "number": (-32700, None),
    "wrong types": (-32600, None),
}


@contextlib.contextmanager
def stdio_server(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "quire"]
    env = server_environment(data_dir, **QUICK)
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        yield process
        process.stdin.close()
        assert process.wait(DEADLINE) == 0


def answers_to(process: subprocess.Popen[bytes], line: bytes) -> list[Any]:
    """What the server says to this line before it answers a sound request that follows."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + b"\n" + SOUND.replace(b'"id": 1', b'"id": "sound"') + b"\n")
    process.stdin.flush()
    said = []
    for each in process.stdout:
        said.append(json.loads(each))
        if said[-1].get("id") == "sound":
            assert said.pop()["result"]["structuredContent"]["return_value"] == 42
            return said
    raise AssertionError(f"the server ended; it said {said}")


def test_stdio_answers_a_message_that_is_too_long_with_the_limit(data_dir: Path) -> None:
    with stdio_server(data_dir) as process:
        for what, message in CUT.items():
            [answer] = answers_to(process, json.dumps(message).encode())
            assert answer["id"] == message["id"] and answer["error"]["code"] == -32600, (what, answer)
            assert "4,048,576 bytes (setting limits.max_request_bytes)" in answer["error"]["message"]
        [answer] = answers_to(process, LONG.encode())
        assert answer["id"] is None and "max_request_bytes" in answer["error"]["message"]
        silent = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"message": LONG}}
        assert answers_to(process, json.dumps(silent).encode()) == []


def test_garbage_on_stdio_costs_nothing_but_itself(data_dir: Path) -> None:
    with stdio_server(data_dir) as process:
        for what, line in LINES.items():
            found = [(each["error"]["code"], each["id"]) for each in answers_to(process, line) if "error" in each]
            assert found == ([UNREADABLE[what]] if what in UNREADABLE else []), (what, found)
        assert answers_to(process, b"\n\r\n") == []  # blank lines are no messages
