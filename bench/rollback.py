"""Rolling a namespace of 1 GiB back and reading it, against `dill.load` of the same one from a cached file.

Before each rollback a cell spoils some of it, and `state` is asked: that waits for the cell's checkpoint, which
an agent's own thinking hides.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dill
from fastmcp import Client

from bench.servers import quire, timed

LIMIT = 1 / 100
_ROUNDS = 10
_BUILD = """
import numpy as np
class Thing:
    def __init__(self, number):
        self.number = number
        self.name = f"thing {number}"
arrays = [np.full(1 << 23, number, dtype=float) for number in range(16)]
things = [Thing(number) for number in range(1000)]
"""
_DUMP = """
import dill, sys
with open(sys.argv[1], "wb") as file:
    dill.dump({"Thing": Thing, "arrays": arrays, "things": things}, file)
"""
_SPOIL = "arrays[3][:1000] = -1; del things[1:]; Thing.__init__ = None"
_READ = "[len(arrays), sum(float(each[5]) for each in arrays), len(things), things[-1].name, Thing(7).number]"
_RIGHT = [16, 120.0, 1000, "thing 999", 7]


async def measure() -> float:
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "namespace.dill"
        subprocess.run([sys.executable, "-c", _BUILD + _DUMP, file], check=True)
        load(file)  # not counted: the system reads it into its cache
        async with quire(Path(folder) / "data") as client:
            await client.call_tool("execute", {"code": _BUILD})
            for _ in range(_ROUNDS):
                await spoil(client)
                ours.append(await timed(lambda: roll_back(client)))
                theirs.append(await timed(lambda: loaded(file)))
    return statistics.median(ours) / statistics.median(theirs)


async def spoil(client: Client[Any]) -> None:
    answer = await client.call_tool("execute", {"code": f"{_SPOIL}\nlen(things)"})
    assert answer.structured_content["return_value"] == 1, answer
    await client.call_tool("state", {})


async def roll_back(client: Client[Any]) -> None:
    await client.call_tool("rollback", {"to": 0})
    answer = await client.call_tool("execute", {"code": _READ})
    assert answer.structured_content["return_value"] == _RIGHT, answer


async def loaded(file: Path) -> None:
    load(file)


def load(file: Path) -> None:
    with file.open("rb") as opened:
        namespace = dill.load(opened)
    assert eval(_READ, namespace) == _RIGHT


async def main() -> list[tuple[str, float, float]]:
    return [("rollback of 1 GiB and 1,000 objects, and reading them / dill.load, p50", await measure(), LIMIT)]
