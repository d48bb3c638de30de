"""100 clients of 10 users for a minute, mixed calls, a fork bomb, a memory bomb and a disk filler among them: calls of
the others that fail, and their p99 against the same without the three.

The bombs are held by the limits of a notebook's processes (1 GB of memory, 100 processes) and the sandbox, fork bomb
and filler also by themselves (512 processes, 256 MB), so that nothing outside is at risk. Each client waits a while
between two calls, as an agent does that reads.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers import variables

from bench.fuzz import Wire
from bench.hostile_requests import MODERN, Sent
from bench.servers import p

CLIENTS, USERS = 100, 10
SECONDS = float(os.environ.get("CROWD_SECONDS", "60"))
_PAUSE = 4.0  # seconds between two calls of one client, on average
_META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
_BOMBS = {
    "fork": "import os, time\nfor _ in range(9):\n    os.fork()\ntime.sleep(60)",  # 512 processes, were it let
    "memory": "held = []\nwhile True:\n    held.append(bytearray(16 * 2**20))",
    "disk": "import os\nfor n in range(32):\n    open(f'filler-{n}', 'wb').write(os.urandom(8 * 2**20))\n"
    "for n in range(32):\n    os.remove(f'filler-{n}')",
}
_CALLS = {"execute": 5, "list_cells": 3, "add_cell": 1, "list_notebooks": 1, "state": 1}  # how often each
_LIMITS = {
    "max_memory_bytes": 10**9,
    "max_processes": 100,
    "max_connections": 300,
    "requests_per_minute": 0,
    "auth": "tokens",
}


@dataclass
class Count:
    taken: list[float] = field(default_factory=list)  # seconds
    failed: list[str] = field(default_factory=list)


class User:
    """One client: a connection, a notebook of its own, and calls whose answers it knows."""

    def __init__(self, port: int, number: int, token: str) -> None:
        self.name = f"n{number}"
        self._token = token
        self._wire = Wire(port)
        self._chance = random.Random(number)
        self._ids = itertools.count(1)
        self._cells = 0

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any] | str:
        """What a tool answers, or why it did not."""
        params = {"name": tool, "arguments": arguments, "_meta": _META}
        body = json.dumps({"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {MODERN}\r\nmcp-method: tools/call"
            f"\r\nmcp-name: {tool}\r\nauthorization: Bearer {self._token}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        answer = await self._wire.send(Sent(head.encode() + body))
        if answer is None:
            return "no answer"
        text = answer[2].decode()
        if answer[1].get("content-type", "").startswith("text/event-stream"):
            text = [line for line in text.splitlines() if line.startswith("data:")][-1].removeprefix("data:")
        said = json.loads(text)
        return said["result"] if answer[0] == 200 and "result" in said else f"{answer[0]}: {text[:300]}"

    async def work(self, until: float, count: Count) -> None:
        while time.perf_counter() < until:
            await asyncio.sleep(self._chance.random() * 2 * _PAUSE)
            start = time.perf_counter()
            wrong = await self._one()
            count.taken.append(time.perf_counter() - start)
            count.failed += [wrong] if wrong else []

    async def _one(self) -> str:
        """A call by chance; what was wrong with its answer."""
        kind = self._chance.choices(list(_CALLS), list(_CALLS.values()))[0]
        token = f"{self.name}-{next(self._ids)}"
        match kind:
            case "execute":
                said = await self.call("execute", code=f"print({token!r})", notebook=self.name)
                fine = isinstance(said, dict) and said["structuredContent"].get("stdout") == f"{token}\n"
            case "add_cell":
                said = await self.call("add_cell", code=token, cell_type="markdown", notebook=self.name)
                fine = isinstance(said, dict) and not said["isError"]
            case "list_notebooks":
                said = await self.call("list_notebooks")
                listed = said["structuredContent"]["notebooks"] if isinstance(said, dict) else []
                names = [each["name"] for each in listed]
                fine = self.name in names and len(names) <= CLIENTS // USERS
            case _:
                said = await self.call(kind, notebook=self.name)
                fine = isinstance(said, dict) and not said["isError"]
        return "" if fine else f"{kind}: {str(said)[:300]}"

    async def begin(self) -> None:
        for said in (
            await self.call("create_notebook", name=self.name, use=False),
            await self.call("execute", code="1", notebook=self.name),
        ):
            assert isinstance(said, dict) and not said["isError"], said

    async def attack(self, until: float, code: str) -> None:
        while time.perf_counter() < until:
            await self.call("execute", code=code, notebook=self.name, timeout=10)

    def close(self) -> None:
        self._wire.close()


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[int, list[str]]]:
    """Its port, and a token of each user."""
    env = {**os.environ, **variables(_LIMITS)}
    env["QUIRE_STORE_DATA_DIR"] = str(folder / "data")
    add = [sys.executable, "-m", "quire", "token", "add"]
    tokens = [
        subprocess.check_output([*add, f"user-{n}"], env=env, text=True, stderr=subprocess.DEVNULL).strip()
        for n in range(USERS)
    ]
    command = [sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", "0"]
    log = folder / "log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, env=env, stderr=file)
    try:
        while b"\n" not in (said := log.read_bytes()):
            await asyncio.sleep(0.05)
        yield int(said.split(b"\n")[0].split()[-1].split(b":")[2].split(b"/")[0]), tokens
    finally:
        process.terminate()
        await process.wait()


async def measure() -> tuple[Count, Count]:
    """The others alone, before and after; the others with the three among them."""
    alone, crowded = Count(), Count()
    with tempfile.TemporaryDirectory() as folder:
        async with server(Path(folder)) as (port, tokens):
            users = [User(port, number, tokens[number % USERS]) for number in range(CLIENTS)]
            for user in users:
                await user.begin()
            bombs, others = users[: len(_BOMBS)], users[len(_BOMBS) :]
            await _all(others, SECONDS / 2, alone)
            until = time.perf_counter() + SECONDS
            async with asyncio.TaskGroup() as group:
                for user, code in zip(bombs, _BOMBS.values(), strict=True):
                    group.create_task(user.attack(until, code))
                group.create_task(_all(others, SECONDS, crowded))
            await _all(others, SECONDS / 2, alone)
            for user in users:
                user.close()
    return alone, crowded


async def _all(users: list[User], seconds: float, count: Count) -> None:
    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        for user in users:
            group.create_task(user.work(until, count))


async def main() -> list[tuple[str, float, float]]:
    alone, crowded = await measure()
    for why in [*alone.failed, *crowded.failed][:5]:
        print(why, file=sys.stderr)
    print(f"p99 alone {p(alone.taken, 99):.3f} s of {len(alone.taken):,} calls, crowded {p(crowded.taken, 99):.3f} s")
    failed = len(alone.failed) + len(crowded.failed)
    return [
        (f"failed calls of {len(crowded.taken):,} beside a fork bomb, a memory bomb and a disk filler", failed, 0),
        (f"calls of {CLIENTS} clients of {USERS} users beside them / without them, p99", _ratio(crowded, alone), 5),
    ]


def _ratio(one: Count, other: Count) -> float:
    return p(one.taken, 99) / p(other.taken, 99)
