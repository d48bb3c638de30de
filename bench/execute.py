"""`execute("1+1")` over stdio against a trivial tool of a bare fastmcp server, alternating call by call.

Agents think between calls, and Quire takes a checkpoint meanwhile. So the calls are measured with pauses of 1, 0.3,
0.1 and 0 s, both servers at the same pace, and beside them a Quire that takes no checkpoints: what these cost. The
first hundred calls of new servers are measured by themselves.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.servers import bare, quire, timed

Call = Callable[[], Awaitable[Any]]

LIMIT = 2.0
_ROUNDS = {1.0: 40, 0.3: 100, 0.1: 150, 0.0: 600}  # by pause, in seconds
_FIRST_CALLS = 100
_FIRST_ROUNDS = 5  # each with new servers
_NO_CHECKPOINTS = {"checkpoint_bytes": 0, "snapshot_interval": 0}


async def measure(pause: float, mode: str = "auto") -> tuple[float, float]:
    """p50 of `execute` over that of the bare tool, as it is and without checkpoints."""
    async with servers(mode) as calls:
        for _ in range(50):  # not counted: first calls import and compile
            for call in calls:
                await call()
        taken = await alternate(calls, _ROUNDS[pause], pause)
    return over_bare(taken)


async def measure_first(mode: str = "auto") -> tuple[float, float]:
    """The same of the first hundred calls, without the very first, which starts a kernel."""
    taken: list[list[float]] = [[], [], []]
    for _ in range(_FIRST_ROUNDS):
        async with servers(mode) as calls:
            for times, more in zip(taken, await alternate(calls, _FIRST_CALLS, 0.0), strict=True):
                times += more[1:]
    return over_bare(taken)


@asynccontextmanager
async def servers(mode: str) -> AsyncIterator[list[Call]]:
    """A call of Quire, of Quire without checkpoints, and of the bare server."""
    async with AsyncExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        ours = await stack.enter_async_context(quire(folders[0], mode))
        without = await stack.enter_async_context(quire(folders[1], mode, **_NO_CHECKPOINTS))
        theirs = await stack.enter_async_context(bare(mode))
        yield [
            lambda: ours.call_tool("execute", {"code": "1+1"}),
            lambda: without.call_tool("execute", {"code": "1+1"}),
            lambda: theirs.call_tool("add", {"a": 1, "b": 1}),
        ]


async def alternate(calls: list[Call], rounds: int, pause: float) -> list[list[float]]:
    """Seconds that each call took, round by round."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            await asyncio.sleep(pause / len(calls))
            times.append(await timed(call))
    return taken


def over_bare(taken: list[list[float]]) -> tuple[float, float]:
    run, run_without, floor = map(statistics.median, taken)
    return run / floor, run_without / floor


async def main() -> list[tuple[str, float, float]]:
    found = []
    for pause, mode in [(0.3, "auto"), (1.0, "auto"), (0.1, "auto"), (0.0, "auto"), (0.0, "legacy")]:
        ratio, without = await measure(pause, mode)
        what = f"execute('1+1') / bare tool, p50, stdio, {mode}, {pause:g} s between calls"
        found.append((f"{what} ({without:.2f} without checkpoints)", ratio, LIMIT))
    ratio, without = await measure_first()
    what = "execute('1+1') / bare tool, p50, stdio, auto, calls 2 to 100, no pause"
    found.append((f"{what} ({without:.2f} without checkpoints)", ratio, LIMIT))
    return found
