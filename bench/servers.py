"""The servers measured: Quire over stdio, and a bare fastmcp server with one trivial tool."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from tests.support.servers import variables

_BARE = """
import sys
from fastmcp import FastMCP
server = FastMCP("bare")
@server.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
how = {"transport": "http", "port": int(sys.argv[1])} if len(sys.argv) > 1 else {}
server.run(show_banner=False, log_level="ERROR", **how)
"""


def quire(data_dir: Path, mode: str = "auto", **settings: object) -> Client[Any]:
    env = {**os.environ, **variables(settings)}
    env["QUIRE_STORE_DATA_DIR"] = str(data_dir)
    return Client(StdioTransport(sys.executable, ["-m", "quire"], env=env, keep_alive=False), mode=mode)


def bare(mode: str = "auto") -> Client[Any]:
    return Client(StdioTransport(sys.executable, ["-c", _BARE], keep_alive=False), mode=mode)


@asynccontextmanager
async def bare_http() -> AsyncIterator[Client[Any]]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _BARE, str(port))
    try:
        async with asyncio.timeout(60):
            while not await _listens(port):
                await asyncio.sleep(0.05)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await call()
    return time.perf_counter() - start


def p(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
