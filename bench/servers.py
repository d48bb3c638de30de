"""The servers measured: Quire over stdio, and a bare fastmcp server with one trivial tool."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

_BARE = """
from fastmcp import FastMCP
server = FastMCP("bare")
@server.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
server.run(show_banner=False, log_level="ERROR")
"""


def quire(data_dir: Path, mode: str = "auto", **settings: object) -> Client[Any]:
    env = {**os.environ, **{f"QUIRE_{name.upper()}": str(value) for name, value in settings.items()}}
    env["QUIRE_DATA_DIR"] = str(data_dir)
    return Client(StdioTransport(sys.executable, ["-m", "quire"], env=env, keep_alive=False), mode=mode)


def bare(mode: str = "auto") -> Client[Any]:
    return Client(StdioTransport(sys.executable, ["-c", _BARE], keep_alive=False), mode=mode)


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await call()
    return time.perf_counter() - start


def p(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
