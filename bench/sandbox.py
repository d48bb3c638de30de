"""What the walls cost: a new kernel and a cell behind all of them against the same without, taking turns."""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from fastmcp import Client

from bench.servers import quire, timed

KERNEL_LIMIT = 0.010  # seconds that a new kernel may take longer
CELL_LIMIT = 1.05
_KERNELS = 20
_CELLS = 400
_WALLED = ("auto", "off")


async def main() -> list[tuple[str, float, float]]:
    cold = await new_kernels(spares=0)
    warm = await new_kernels(spares=1)
    walled, without = await cells()
    for what, (ours, theirs) in {
        "new kernel": cold,
        "new kernel, from a spare": warm,
        "cell": (walled, without),
    }.items():
        print(f"     {what}: {ours * 1000:.2f} ms walled, {theirs * 1000:.2f} ms without", file=sys.stderr, flush=True)
    return [
        ("new kernel behind the walls, ms more, p50", (cold[0] - cold[1]) * 1000, KERNEL_LIMIT * 1000),
        ("new kernel from a spare, ms more, p50", (warm[0] - warm[1]) * 1000, KERNEL_LIMIT * 1000),
        ("x = 1+1 walled / without, p50", walled / without, CELL_LIMIT),
    ]


async def new_kernels(spares: int) -> tuple[float, float]:
    """Seconds from a notebook's making to its first result, walled and without."""
    taken: tuple[list[float], list[float]] = ([], [])
    async with _pair(spare_kernels=spares) as clients:
        for number in range(_KERNELS + 3):
            for client, found in zip(clients, taken, strict=True):
                await client.call_tool("create_notebook", {"name": f"n{number}"})
                if spares:
                    await anyio.sleep(0.6)  # the next spare is made
                found.append(await timed(lambda client=client: client.call_tool("execute", {"code": "1"})))
                await client.call_tool("reset", {})
    walled, without = (statistics.median(found[3:]) for found in taken)  # the first of them warm up
    return walled, without


async def cells() -> tuple[float, float]:
    taken: tuple[list[float], list[float]] = ([], [])
    async with _pair() as clients:
        for number in range(_CELLS + 50):
            for client, found in zip(clients, taken, strict=True):
                seconds = await timed(lambda client=client: client.call_tool("execute", {"code": "x = 1+1"}))
                if number >= 50:
                    found.append(seconds)
    walled, without = (statistics.median(found) for found in taken)
    return walled, without


class _pair:
    """Clients of two servers that differ in their walls alone."""

    def __init__(self, **settings: object) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> list[Client[Any]]:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        return [
            await self._stack.enter_async_context(quire(Path(folder, wall), sandbox=wall, **self._settings))
            for wall in _WALLED
        ]

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()
