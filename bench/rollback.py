"""Rolling a namespace of 1 GiB back, against `dill.load` of the same one from a cached file, both from Python.

Before each rollback a cell spoils some of it, and after it another reads all of it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import dill

import quire
from bench.servers import timed
from quire.frontends.python import Notebook

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
        async with quire.open(Path(folder) / "data") as q:
            notebook = await q.notebook()
            await run(notebook, _BUILD)
            for _ in range(_ROUNDS):
                await run(notebook, _SPOIL)
                await notebook.checkpoints()  # waits for the one of that cell, which thinking hides
                ours.append(await timed(lambda: notebook.rollback(0)))
                await run(notebook, f"assert {_READ} == {_RIGHT}")
                theirs.append(await timed(lambda: loaded(file)))
    return statistics.median(ours) / statistics.median(theirs)


async def run(notebook: Notebook, code: str) -> None:
    cell = await notebook.add_cell(code)
    assert cell.state == "SUCCESS", await cell.text()


async def loaded(file: Path) -> None:
    load(file)


def load(file: Path) -> None:
    with file.open("rb") as opened:
        namespace = dill.load(opened)
    assert eval(_READ, namespace) == _RIGHT


async def main() -> list[tuple[str, float, float]]:
    return [("rollback of 1 GiB and 1,000 objects / dill.load, p50", await measure(), LIMIT)]
