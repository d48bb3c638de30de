"""100,000 fuzzed requests to a real HTTP server, schema-valid and not: answers of 5xx, ends, growth of its memory.

Growth is counted from when the first tenth has been answered: by then what is loaded once is loaded.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from tests.support.servers import variables

from bench.hostile_requests import LEGACY, Hostile, Sent
from bench.processes import resident

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "100000"))
_CONNECTIONS = 8
_SMALL = {"max_kernels": 20, "max_notebooks_per_user": 20, "max_cells": 100}  # what is kept does not grow: a leak does
_ANSWER = 60.0  # seconds
_HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
_POST = "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json, " + (
    "text/event-stream\r\n"
)


@dataclass
class Seen:
    """What came back: answers by status, and requests that got none though they should have."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[bytes] = field(default_factory=list)  # requests that were answered by 5xx
    silent: list[bytes] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return self.statuses.total()


class Wire:
    """One HTTP connection, made anew when the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: Sent) -> tuple[int, dict[str, str], bytes] | None:
        """The answer; None where the connection ended without one."""
        for fresh in (False, True):
            again = self._streams is not None and not fresh
            try:
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)
                reader, writer = self._streams
                writer.write(request.data)
                async with asyncio.timeout(_ANSWER):
                    await writer.drain()
                    answer = await self._read(reader, head=request.data.startswith(b"HEAD"))
                if request.closes or answer[1].get("connection") == "close":
                    self.close()
                return answer
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                self.close()
                if not again:  # an old connection may have been closed since
                    return None
        return None

    async def _read(self, reader: asyncio.StreamReader, *, head: bool) -> tuple[int, dict[str, str], bytes]:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        if head or status in (204, 304):
            return status, headers, b""
        if headers.get("transfer-encoding") != "chunked":
            return status, headers, await reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return status, headers, body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def tools_of(url: str) -> list[dict[str, Any]]:
    async with Client(StreamableHttpTransport(url)) as client:
        return [{"name": tool.name, "inputSchema": tool.input_schema} for tool in await client.list_tools()]


async def session_of(port: int) -> str:
    """A session of the older era."""
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HELLO}).encode()
    wire = Wire(port)
    answer = await wire.send(Sent(_POST.encode() + b"content-length: %d\r\n\r\n" % len(body) + body))
    wire.close()
    assert answer is not None and answer[0] == 200, answer
    return answer[1]["mcp-session-id"]


async def pelt(url: str, count: int, seed: int, seen: Seen) -> None:
    """So many requests over several connections."""
    port = int(url.split(":")[2].split("/")[0])
    tools = await tools_of(url)

    async def one(number: int) -> None:
        hostile, wire = Hostile(seed * 1000 + number, tools, await session_of(port)), Wire(port)
        for _ in range(count // _CONNECTIONS):
            request = hostile.next()
            answer = await wire.send(request)
            if answer is None:
                seen.silent += [] if request.closes else [request.data]
            else:
                seen.statuses[answer[0]] += 1
                seen.faults += [request.data] if answer[0] >= 500 else []
        wire.close()

    async with asyncio.TaskGroup() as group:
        for number in range(_CONNECTIONS):
            group.create_task(one(number))


@asynccontextmanager
async def server(data_dir: Path, log: Path) -> AsyncIterator[tuple[str, int]]:
    """Its address and its process; what it says goes to a file, so that a full pipe does not stop it."""
    settings = {"data_dir": data_dir, "requests_per_minute": 0, "preload": "", **_SMALL}
    env = {**os.environ, **variables(settings)}
    command = [sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", "0"]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, env=env, stderr=file)
    try:
        while b"\n" not in (said := log.read_bytes()):
            await asyncio.sleep(0.05)
        yield said.split(b"\n")[0].split()[-1].decode(), process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def main() -> list[tuple[str, float, float]]:
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        async with server(Path(folder) / "data", log) as (url, pid):
            await pelt(url, REQUESTS // 10, 1, seen)
            before = resident(pid)[0]
            await pelt(url, REQUESTS * 9 // 10, 2, seen)
            grown = (resident(pid)[0] - before) / 2**20
            ended = not Path(f"/proc/{pid}/exe").exists()
        for data in [*seen.faults[:5], *seen.silent[:5]]:
            print(data[:600], file=sys.stderr)
        print(f"answers by status: {dict(sorted(seen.statuses.items()))}; log: {log.stat().st_size:,} bytes")
    faults = sum(number for status, number in seen.statuses.items() if status >= 500)
    return [
        (f"answers of 5xx to {REQUESTS:,} fuzzed requests", faults, 0),
        ("of them without an answer, or after which the server was gone", len(seen.silent) + ended, 0),
        ("growth of the server's memory over the last nine tenths of them, MiB", grown, 20),
    ]
