"""One notebook while a cell of another floods the server with frames: p99 of its calls, in ms; of each kind of flood.

Calls come 50 ms apart, as no client is quicker for long.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from fastmcp import Client

from bench.hostile_frames import FLOODS, flooding
from bench.servers import p, quire, timed

LIMIT = 200.0  # ms
_CALLS = 100
_PAUSE_S = 0.05


async def measure(kind: str) -> tuple[float, float]:
    """p99 in ms of calls without a flood and beside one of this kind."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as signs:
        stop = Path(signs) / "stop"
        async with quire(Path(folder), mounts=f"{signs}:rw") as client:
            for name in ("hostile", "other"):
                await client.call_tool("create_notebook", {"name": name})
            await look(client, _CALLS // 5)  # not counted: first calls import and compile
            alone = await look(client, _CALLS)
            flood = asyncio.create_task(_flood(client, kind, stop))
            beside = await look(client, _CALLS)
            stop.touch()
            await flood
    return p(alone, 99) * 1000, p(beside, 99) * 1000


async def look(client: Client[Any], calls: int) -> list[float]:
    taken = []
    for number in range(calls):
        arguments = {"code": f"{number} + 1", "notebook": "other"}
        taken.append(await timed(lambda arguments=arguments: client.call_tool("execute", arguments)))  # type: ignore[misc]
        await asyncio.sleep(_PAUSE_S)
    return taken


async def _flood(client: Client[Any], kind: str, stop: Path) -> None:
    code = flooding(kind, stop)
    await client.call_tool("execute", {"code": code, "notebook": "hostile", "timeout": 120}, raise_on_error=False)


async def main() -> list[tuple[str, float, float]]:
    found = []
    for kind in FLOODS:
        alone, beside = await measure(kind)
        found.append((f"ms, p99, of a call beside a flood of frames: {kind} ({alone:.0f} ms alone)", beside, LIMIT))
    return found
