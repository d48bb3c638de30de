"""100 MB printed by one cell: what it adds to the server's own memory, in MiB; counts, not ratios."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench import processes
from bench.servers import quire

LIMIT = 20.0  # MiB
_PRINT = "for _ in range(1_000_000): print('x' * 99)"
_TIMEOUT = 120
_MOMENT = 1.0  # seconds until what the answer was made of is let go


async def measure() -> tuple[float, float]:
    """MiB the server had more than before: at most, up to the answer, and a moment after it."""
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client:
            for number in range(20):  # not counted: first calls import and compile
                await client.call_tool("execute", {"code": f"print({number})"})
            server = processes.quire_server()
            before, _ = processes.resident(server)
            processes.forget_peak(server)
            answer = await client.call_tool("execute", {"code": _PRINT, "timeout": _TIMEOUT})
            assert answer.structured_content["success"], answer
            _, peak = processes.resident(server)
            await asyncio.sleep(_MOMENT)
            after, _ = processes.resident(server)
    return (peak - before) / 2**20, (after - before) / 2**20


async def main() -> list[tuple[str, float, float]]:
    peak, after = await measure()
    return [
        ("MiB the server grows by while a cell prints 100 MB, at its peak", peak, LIMIT),
        ("MiB of them it keeps a moment later", after, LIMIT),
    ]
