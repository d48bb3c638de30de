"""Sandboxes in WebAssembly: a new session, a call against a bare tool and against llm-wasm-sandbox, 500 live sessions,
a session beside an endless loop, a restore from disk.

PEER_PYTHON names the Python of an environment with llm-wasm-sandbox 0.4.4, 'fastmcp>=2.13.1,<3' and 'mcp>=1.22,<2';
without it that comparison is left out, and said so.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import quire as quires
from bench.processes import children, pss
from bench.servers import bare, quire, timed

os.environ["QUIRE_WASM_PYTHON"] = "plain"  # bench.science compares the other with it
_LANGUAGES = ("python", "javascript")
_ROUNDS = 300
_SESSIONS = 500
_NEW = 40
_PAUSE = 0.1  # seconds between two new sessions: they are not asked for by a loop
_FASTER = {"python": 1_000, "javascript": 200}
_PEER_ROUNDS = 5
_IN_A_ROW = 200
_CODE = {"python": "print(1+1)", "javascript": "console.log(1+1)"}

Found = list[tuple[str, float, float]]


async def main() -> Found:
    found: Found = []
    for language in _LANGUAGES:
        found += await calls(language)
        found += await sessions(language)
    found += await live_sessions()
    return found


async def calls(language: str) -> Found:
    """`1+1` in a session against a bare tool, call by call, and against the peer."""
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder), toolsets="sandbox") as ours, bare() as theirs:
            run, floor = [], []
            for number in range(_ROUNDS + 50):
                taken = await timed(lambda: ours.call_tool("execute_code", {"code": "1+1", "language": language}))
                least = await timed(lambda: theirs.call_tool("add", {"a": 1, "b": 1}))
                if number >= 50:
                    run.append(taken)
                    floor.append(least)
            compared = await _compared(ours, language)
    return [
        (f"execute_code('1+1') in {language} / bare tool, p50, stdio", _p50(run) / _p50(floor), 2.0),
        *compared,
    ]


async def _compared(ours: Client[Any], language: str) -> Found:
    """A call of the peer's and many of ours by turns: the machine's own pace changes within seconds."""
    python = os.environ.get("PEER_PYTHON")
    if not python:
        print("     PEER_PYTHON is not set: not compared with llm-wasm-sandbox", file=sys.stderr)
        return []
    command = str(Path(python).with_name("llm-wasm-mcp"))
    quick, slow, first = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        transport = StdioTransport(command, [], cwd=folder, keep_alive=False, log_file=Path(os.devnull))
        async with Client(transport) as peer:
            await _printed(peer, language)
            for _ in range(_PEER_ROUNDS):
                slow.append(await timed(lambda: _printed(peer, language)))
                every = [await timed(lambda: _printed(ours, language)) for _ in range(_IN_A_ROW)]
                quick += every[_IN_A_ROW // 2 :]
                first.append(_p50(every[:10]))
    print(f"     the first ten in a row, ms, p50: {_p50(first) * 1000:.2f}", file=sys.stderr)
    return [(f"print in {language} / llm-wasm-sandbox", _p50(quick) / _p50(slow), 1 / _FASTER[language])]


async def _printed(client: Client[Any], language: str) -> None:
    answer = await client.call_tool("execute_code", {"code": _CODE[language], "language": language})
    assert "2" in str(answer.content), answer


async def sessions(language: str) -> Found:
    """From asking for a session to its being there, then to its first value; the restore of one that is on disk."""
    new, first, restored = [], [], []
    settings: dict[str, Any] = {"toolsets": "sandbox,repl", "runtime": f"wasm-{language}", "snapshot_interval": 0}
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder), **settings) as client:
            for number in range(_NEW):
                await anyio.sleep(_PAUSE)
                name = {"session_id": f"s{number}"}
                make = partial(client.call_tool, "create_session", {"language": language, **name})
                new.append(await timed(make))
                first.append(await timed(partial(client.call_tool, "execute_code", {"code": "1+1", **name})))
            kept = "kept = list(range(10000))" if language == "python" else "let kept = Array.from({length: 10000})"
            await client.call_tool("execute_code", {"code": kept, "session_id": "s0"})
            await client.call_tool("save_state", {"name": "kept", "notebook": "s0"})
        again = {"name": "kept", "notebook": "s0"}
        for _ in range(5):
            async with quire(Path(folder), **settings) as client:
                await client.call_tool("execute_code", {"code": "1", "session_id": "s1"})  # the host is there
                restored.append(await timed(lambda: client.call_tool("restore_state", again)))
    print(f"     then its first value, ms, p50: {_p50(first[5:]) * 1000:.1f}", file=sys.stderr)
    return [
        (f"new session in {language}, ms, p50", _p50(new[5:]) * 1000, 10),
        (f"restore of a {language} session from disk, s", max(restored), 1.0),
    ]


async def live_sessions() -> Found:
    """500 of them, half in each language, each asked for its own value; then one loops, and another goes on."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            without = dict.fromkeys(("max_kernels", "max_kernels_per_user", "snapshot_interval", "auto_save"), 0)
            q = await stack.enter_async_context(quires.open(folder, preload="", spare_kernels=0, **without))
            books = [
                await q.create(f"s{number}", runtime=f"wasm-{_LANGUAGES[number % 2]}") for number in range(_SESSIONS)
            ]
            for number, book in enumerate(books):
                await book.add_cell(f"x = {number}" if number % 2 == 0 else f"let x = {number}")
            wrong = 0
            for number, book in enumerate(books):
                wrong += await book.value("x") != number
            hosts = [pid for pid in children(os.getpid()) if b"quire.runtimes.wasm.host" in _command(pid)]
            held = sum(map(pss, hosts)) / 2**30
            print(f"     {len(hosts)} hosts", file=sys.stderr)
            alone = await _cells(books[0])
            async with anyio.create_task_group() as group:
                group.start_soon(partial(books[2].add_cell, "while True: pass", timeout=60))
                await anyio.sleep(0.5)
                beside = await _cells(books[0])
                await books[2].interrupt()
    return [
        (f"of {_SESSIONS} live sessions, wrong", wrong, 0),
        (f"memory of the processes that hold {_SESSIONS} live sessions, GiB", held, 2.0),
        ("1+1 beside an endless loop / alone, p50", beside / alone, 2.0),
    ]


async def _cells(book: Any) -> float:
    taken = []
    for _ in range(100):
        start = time.perf_counter()
        await book.add_cell("1+1")
        taken.append(time.perf_counter() - start)
    return _p50(taken)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _p50(values: list[float]) -> float:
    return statistics.median(values)
