"""Calls that code makes to other MCP servers through Quire, against the same calls by a bare fastmcp client.

Both sides have a process of the same server, persistent, over stdio, and take turns by blocks of calls; a relayed
call is timed in the cell that makes it. Then many calls at once, what a model reads of real servers, and calls
while kernels crash and the server is killed.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from bench.servers import quire, timed
from bench.surface import wire_chars

LIMIT = 1.5
GATHER_LIMIT = 1 / 20
VIEW_LIMIT = 1 / 4
_BLOCKS = 40
_CALLS = 25  # of one block
_WARM = 4  # blocks that are not counted
_AT_ONCE = 100
_TURNS = 5

_SERVER = """
import asyncio, os
from fastmcp import FastMCP
server = FastMCP("bench")
@server.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
@server.tool
async def nap(seconds: float, number: int = 0) -> int:
    "Sleep, then give the number back."
    await asyncio.sleep(seconds)
    return number
@server.tool
async def process() -> int:
    "The number of this process."
    return os.getpid()
server.run(show_banner=False, log_level="ERROR")
"""
_COMMAND = [sys.executable, "-c", _SERVER]


async def one() -> float:
    """A relayed call over a direct one, p50."""
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client, _client(_COMMAND) as direct:
            await _install(client, "backend", _COMMAND)
            for _ in range(_BLOCKS):
                ours += await _cell(client, _LOOP)
                for _ in range(_CALLS):
                    theirs.append(await timed(lambda: direct.call_tool("add", {"a": 1, "b": 2})))
    first = _WARM * _CALLS
    return statistics.median(ours[first:]) / statistics.median(theirs[first:])


_LOOP = f"""
import time
taken = []
for _ in range({_CALLS}):
    begun = time.perf_counter()
    found = backend.add(1, 2)
    taken.append(time.perf_counter() - begun)
    assert found == 3
taken
"""


async def at_once() -> float:
    """Calls by gather over the same one after the other, p50."""
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder), cell_timeout=60) as client:
            await _install(client, "backend", _COMMAND)
            turns = [await _cell(client, _GATHER) for _ in range(_TURNS)]
    return statistics.median(together / apart for together, apart in turns)


_GATHER = f"""
import asyncio, time
begun = time.perf_counter()
found = await asyncio.gather(*(backend.nap.aio(0.05, number) for number in range({_AT_ONCE})))
together = time.perf_counter() - begun
assert found == list(range({_AT_ONCE}))
begun = time.perf_counter()
for number in range({_AT_ONCE}):
    assert backend.nap(0.05, number) == number
[together, time.perf_counter() - begun]
"""


# What a model reads of real servers

_REAL = {
    "everything": ("@modelcontextprotocol/server-everything", "2026.8.31", "dist/index.js"),
    "files": ("@modelcontextprotocol/server-filesystem", "2026.8.31", "dist/index.js"),
    "memory": ("@modelcontextprotocol/server-memory", "2026.8.31", "dist/index.js"),
    "thinking": ("@modelcontextprotocol/server-sequential-thinking", "2026.8.31", "dist/index.js"),
    "browser": ("@playwright/mcp", "0.0.83", "cli.js"),
}


async def view() -> tuple[float, int]:
    """Characters of all methods, a line each, over those of `tools/list`; how many there are."""
    listed, count = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client:
            for name, command in _real().items():
                command = [*command, folder] if name == "files" else command
                async with _client(command) as direct:
                    tools = await direct.list_tools()
                listed, count = listed + wire_chars(tools), count + len(tools)
                await _install(client, name, command)
            shown, lines = await _cell(client, "view = caps.describe()\n[len(view), view.count('\\n  ')]")
            assert lines == count, (lines, count)
    return shown / listed, count


def _real() -> dict[str, list[str]]:
    """Five servers of the npm registry, kept from run to run in the folder for temporary files."""
    folder = Path(tempfile.gettempdir(), "quire-bench-servers")
    wanted = [f"{package}@{version}" for package, version, _ in _REAL.values()]
    note = folder / "wanted.json"
    if not note.exists() or json.loads(note.read_text()) != wanted:
        folder.mkdir(exist_ok=True)
        install = [
            "npm",
            "install",
            "--prefix",
            str(folder),
            "--no-save",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]
        subprocess.run([*install, "--loglevel=error", *wanted], check=True, stdout=sys.stderr)
        note.write_text(json.dumps(wanted))
    return {
        name: ["node", str(folder / "node_modules" / package / entry)] for name, (package, _, entry) in _REAL.items()
    }


# Crashes and kills

_CELLS = 20
_EACH = 50  # calls of one cell, all in flight at once
_CRASHES = (4, 9, 14)
_KILLS = (7, 12)


async def lost_or_crossed() -> tuple[int, int, int]:
    """Calls with another's answer, or with neither an answer nor an error; answered right; ended by an error.

    What calls came to is in a file, which outlives the kernel. A call of a cell that crashed has that for its error.
    """
    bad = right = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "calls.jsonl")
        async with quire(Path(folder, "data"), cell_timeout=60) as client:
            await _install(client, "backend", _COMMAND)
            for number in range(_CELLS):
                await client.call_tool("state", {})  # waits for the checkpoint of the cell before
                file.write_text("")
                code = _MANY.format(file=str(file), first=number * _EACH, each=_EACH, do=_what(number))
                done = (await client.call_tool("execute", {"code": code}, raise_on_error=False)).structured_content
                crashed = done["state"] == "CRASHED"
                assert crashed == (number in _CRASHES) and (crashed or done["success"]), done
                came = dict(map(json.loads, file.read_text().splitlines()))
                expected = range(number * _EACH, (number + 1) * _EACH)
                right += sum(came.get(each) == each for each in expected)
                failed = sum(came.get(each) == "error" for each in expected)
                missing = sum(each not in came for each in expected)
                wrong += failed + (missing if crashed else 0)
                bad += _EACH - failed - (missing if crashed else 0) - sum(came.get(each) == each for each in expected)
                bad += 0 if crashed else _unrecorded(Path(folder, "data", "audit.jsonl"), expected)
    return bad, right, wrong


def _what(number: int) -> str:
    if number in _CRASHES:
        return "__import__('ctypes').string_at(0)"
    return "os.kill(pid, signal.SIGKILL)" if number in _KILLS else "pass"


def _unrecorded(audit: Path, expected: range) -> int:
    """Calls that have not one line each in the audit log."""
    digests = [json.loads(line)["digest"] for line in audit.read_text().splitlines()]
    given = (json.dumps({"number": n, "seconds": _nap(n)}, sort_keys=True, separators=(",", ":")) for n in expected)
    return sum(digests.count(hashlib.sha256(each.encode()).hexdigest()[:16]) != 1 for each in given)


def _nap(number: int) -> float:
    return (number * 7 % _EACH) / 1000


# By turns in tasks and in threads; when half of them are back, what is to happen happens to the others.
_MANY = """
import asyncio, json, os, signal, threading, time
from concurrent.futures import ThreadPoolExecutor
while True:
    try:
        pid = backend.process()
        break
    except CapabilityGone:
        time.sleep(0.05)
back, lock = [], threading.Lock()
def note(number, came):
    with lock, open({file!r}, "a") as file:
        file.write(json.dumps([number, came]) + "\\n")
        back.append(number)
        half = len(back) == {each} // 2
    if half:
        {do}
def call(number):
    try: came = backend.nap((number * 7 % {each}) / 1000, number)
    except ToolError: came = "error"
    note(number, came)
async def call_aio(number):
    try: came = await backend.nap.aio((number * 7 % {each}) / 1000, number)
    except ToolError: came = "error"
    note(number, came)
numbers = range({first}, {first} + {each})
if {first} // {each} % 2:
    await asyncio.gather(*map(call_aio, numbers))
else:
    with ThreadPoolExecutor({each}) as pool:
        list(pool.map(call, numbers))
"""


async def _install(client: Client[Any], name: str, command: list[str]) -> None:
    await client.call_tool("install_capability", {"name": name, "server_command": shlex.join(command)})


async def _cell(client: Client[Any], code: str) -> Any:
    answer = await client.call_tool("execute", {"code": code})
    assert answer.structured_content["success"], answer
    return answer.structured_content["return_value"]


def _client(command: list[str]) -> Client[Any]:
    return Client(StdioTransport(command[0], command[1:], keep_alive=False))


async def main() -> list[tuple[str, float, float]]:
    ratio = await one()
    together = await at_once()
    shown, tools = await view()
    bad, right, wrong = await lost_or_crossed()
    what = f"{len(_CRASHES)} crashes and {len(_KILLS)} kills ({right} answered right, {wrong} ended by an error)"
    return [
        ("a relayed call / the same by a bare fastmcp client, p50, stdio", ratio, LIMIT),
        (f"{_AT_ONCE} calls of 50 ms by gather / one after the other", together, GATHER_LIMIT),
        (f"characters of {tools} methods of {len(_REAL)} servers, a line each / their tools/list", shown, VIEW_LIMIT),
        (f"calls lost or crossed of {_CELLS * _EACH:,}, {what}", bad, 0),
    ]
