"""`x = 1+1` over stdio with a checkpoint after each run against the same without any, alternating call by call.

No pause between calls: a checkpoint is taken while the caller would think, so this caller, who does not, pays
for each one that is taken. With a large heap most are not taken; how many runs a crash would have cost then is said.
"""

from __future__ import annotations

import re
import statistics
import tempfile
from pathlib import Path
from typing import Any

from fastmcp import Client

from bench.servers import quire, timed

LIMIT = 1.5
_ROUNDS = 300
_SMALL = "data = []"
_LARGE = "data = [bytes(79) for _ in range(18_000_000)]"  # 112 bytes each, 2 GB
_BUILD = 300  # seconds it may take
_WARM = 50


async def measure(heap: str) -> tuple[float, str]:
    """With over without checkpoints, p50; and how much was protected when the last answer came."""
    call = ("execute", {"code": "x = 1+1"})
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        async with quire(Path(one)) as kept, quire(Path(other), checkpoint_bytes=0) as bare:
            for client in (kept, bare):
                built = await client.call_tool("execute", {"code": heap, "timeout": _BUILD})
                assert built.structured_content["success"], built
            protected, plain = [], []
            for _ in range(_WARM + _ROUNDS):
                protected.append(await timed(lambda: kept.call_tool(*call)))
                plain.append(await timed(lambda: bare.call_tool(*call)))
            said = await protection(kept)
            assert "turned off" in await protection(bare)
    return statistics.median(protected[_WARM:]) / statistics.median(plain[_WARM:]), said


async def protection(client: Client[Any]) -> str:
    """As it is this moment: the tool `state` would wait for a checkpoint first."""
    return (await client.call_tool("list_notebooks", {})).structured_content["notebooks"][0]["protection"]


def _runs(said: str) -> str:
    """How many of the runs a crash would not have cost."""
    total = 1 + _WARM + _ROUNDS
    found = re.search(r"(up to|since) run (\d+)", said)
    assert found is not None, said
    return f"{int(found[2]) - (found[1] == 'since')} of {total} runs protected"


async def main() -> list[tuple[str, float, float]]:
    results = []
    for what, heap in (("small heap", _SMALL), ("2 GB of small objects", _LARGE)):
        ratio, said = await measure(heap)
        results.append((f"x = 1+1 with / without checkpoints, p50, {what} ({_runs(said)})", ratio, LIMIT))
    return results
