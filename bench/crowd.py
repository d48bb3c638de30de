"""`list_cells` over HTTP while fifty notebooks are busy against the same when nothing runs, p99.

Each busy notebook runs cell after cell without a pause, by turns 20 ms asleep and 20 ms of the processor's time
in plain Python, and each answer must be its own. Fifty clients call from a process of their own, so that what is
measured is the server on the machine it shares with all of them, not the loop of the measuring client.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from tests.support.servers import variables

from bench.servers import p, timed

LIMIT = 5.0
_NOTEBOOKS = 50
_SECONDS = 20.0  # of list_cells, one call after the other, idle and busy each
_CELLS = (
    "import time; time.sleep(0.02); print({token!r})",
    "import time; end = time.process_time() + 0.02\nwhile time.process_time() < end: sum(range(100))\nprint({token!r})",
)


async def measure() -> tuple[float, int, int]:
    """Busy p99 over idle p99; wrong answers; answers."""
    with tempfile.TemporaryDirectory() as folder:
        async with server(Path(folder)) as url, Client(StreamableHttpTransport(url)) as client:
            await client.call_tool("create_notebook", {"name": "small"})
            for number in range(5):
                await client.call_tool("execute", {"code": f"print({number})"})
            await look(client, 1.0)  # not counted: first calls import and compile
            idle = await look(client, _SECONDS / 2)
            async with crowd(url) as count:
                busy = await look(client, _SECONDS)
            idle += await look(client, _SECONDS / 2)  # before and after: other work on the machine comes and goes
    return p(busy, 99) / p(idle, 99), count["wrong"], count["answers"]


async def look(client: Client[Any], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    taken = []
    while time.perf_counter() < end:
        taken.append(await timed(lambda: client.call_tool("list_cells", {"notebook": "small"})))
    return taken


@asynccontextmanager
async def server(data_dir: Path, **settings: object) -> AsyncIterator[str]:
    """Over HTTP, in a session of its own, as a service is: where Linux shares processors among sessions, it then has
    its own share beside its clients'."""
    env = {**os.environ, **variables(settings)}
    env["QUIRE_STORE_DATA_DIR"] = str(data_dir)
    command = [sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stderr is not None
    try:
        first = (await process.stderr.readline()).decode()
        assert first.startswith("Quire listens at "), first
        yield first.split()[-1]
    finally:
        process.terminate()
        await process.communicate()


@asynccontextmanager
async def crowd(url: str) -> AsyncIterator[dict[str, int]]:
    """The busy clients, all at work while the block lasts; what they counted is there after it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.crowd", url, stdin=pipe, stdout=pipe, cwd=Path(__file__).parents[1]
    )
    assert process.stdout is not None
    count: dict[str, int] = {}
    try:
        assert await process.stdout.readline() == b"busy\n"
        yield count
    finally:
        said, _ = await process.communicate(b"")  # its stdin ends, so it stops
    count.update(json.loads(said))


async def be_busy(url: str) -> None:
    """Fifty clients, each in a notebook of its own, until stdin ends."""
    stop = asyncio.Event()
    counts = [{"answers": 0, "wrong": 0} for _ in range(_NOTEBOOKS)]
    async with asyncio.TaskGroup() as group:
        for number, count in enumerate(counts):
            group.create_task(_loop(url, number, count, stop))
        while min(count["answers"] for count in counts) < 2:
            await asyncio.sleep(0.01)
        print("busy", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        stop.set()
    print(json.dumps({key: sum(count[key] for count in counts) for key in ("answers", "wrong")}))


async def _loop(url: str, notebook: int, count: dict[str, int], stop: asyncio.Event) -> None:
    name = f"busy-{notebook}"
    async with Client(StreamableHttpTransport(url)) as client:
        await client.call_tool("create_notebook", {"name": name})
        while not stop.is_set():
            number = count["answers"]
            token = f"{name} says {number}"
            code = _CELLS[(notebook + number) % 2].format(token=token)
            answer = await client.call_tool("execute", {"code": code, "notebook": name}, raise_on_error=False)
            said = answer.structured_content or {}
            if (said.get("stdout"), said.get("cell_number")) != (f"{token}\n", number):
                count["wrong"] += 1
                print(f"wrong: {token!r} was answered by {said or answer.content}", file=sys.stderr)
            count["answers"] += 1


async def main() -> list[tuple[str, float, float]]:
    ratio, wrong, answers = await measure()
    return [
        (f"list_cells while {_NOTEBOOKS} notebooks are busy / idle, p99", ratio, LIMIT),
        (f"wrong answers of {answers:,} of {_NOTEBOOKS} busy notebooks", wrong, 0),
    ]


if __name__ == "__main__":
    asyncio.run(be_busy(sys.argv[1]))
