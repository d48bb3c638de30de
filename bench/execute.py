"""`execute("1+1")` over stdio against a trivial tool of a bare fastmcp server, alternating call by call."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.servers import bare, quire, timed

LIMIT = 2.0
_ROUNDS = 600


async def measure(mode: str = "auto") -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder), mode) as ours, bare(mode) as theirs:
            for _ in range(50):
                await ours.call_tool("execute", {"code": "1+1"})
                await theirs.call_tool("add", {"a": 1, "b": 1})
            run, floor = [], []
            for _ in range(_ROUNDS):
                run.append(await timed(lambda: ours.call_tool("execute", {"code": "1+1"})))
                floor.append(await timed(lambda: theirs.call_tool("add", {"a": 1, "b": 1})))
    return statistics.median(run) / statistics.median(floor)


async def main() -> list[tuple[str, float, float]]:
    return [
        (f"execute('1+1') / bare tool, p50, stdio, {mode}", await measure(mode), LIMIT) for mode in ("auto", "legacy")
    ]
