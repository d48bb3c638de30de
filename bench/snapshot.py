"""A notebook of 1 GiB of arrays and 1,000 objects, written down and brought back, against dill's session of the same.

The file of dill's is in the system's cache, as are the packs. Each figure is a median of a few rounds, side by side.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

import quire
from bench.servers import timed
from quire.frontends.python import Notebook, Quire

_ROUNDS = 5
_CELLS = 200
_BUILD = """
import numpy as np
class Thing:
    def __init__(self, number):
        self.number = number
        self.name = f"thing {number}"
for number in range(16):
    globals()[f"array{number}"] = np.random.default_rng(number).random(1 << 23)
for number in range(1000):
    globals()[f"thing{number}"] = Thing(number)
"""
_CHANGE = "thing7.number += 1; array3[5] = thing7.number"
_READ = "[float(array15[5]), thing999.name, thing7.number]"
_DILL = """
import dill, sys, time
times = []
for _ in range(3):
    begun = time.perf_counter(); dill.dump_session(sys.argv[1]); times.append(time.perf_counter() - begun)
print(sorted(times)[1])
"""
_UNDILL = """
import dill, sys, time
begun = time.perf_counter(); dill.load_session(sys.argv[1]); print(time.perf_counter() - begun)
"""


async def main() -> list[tuple[str, float, float]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump, load, size = dilled(folder / "session")
        async with quire.open(folder / "data", checkpoints_snapshot_interval_seconds=0) as q:
            notebook = await q.notebook()
            await run(notebook, _BUILD)
            await notebook.save("whole")  # the first writes it all
            write, added = await incremental(q, notebook)
            beside = await while_written(q, notebook)
        restore = await restored(folder / "data", "main")
        small = await small_over_fresh(folder / "small")
    return [
        ("incremental snapshot of 1 GiB / dill.dump_session, time", write / dump, 1 / 20),
        ("... bytes", added / size, 1 / 1000),
        ("a cell's p50 while snapshots are written / without", beside, 1.3),
        ("restore of 1 GiB / dill.load_session", restore / load, 1.0),
        ("restore of a small notebook, over a fresh kernel, ms", small * 1000, 100.0),
    ]


def dilled(file: Path) -> tuple[float, float, int]:
    """Seconds to dump and to load, and bytes."""
    dump = float(python(_BUILD + _DILL, file))
    load = statistics.median(float(python(_UNDILL, file)) for _ in range(3))
    return dump, load, file.stat().st_size


def python(code: str, file: Path) -> str:
    return subprocess.run([sys.executable, "-c", code, file], check=True, capture_output=True, text=True).stdout


async def incremental(q: Quire, notebook: Notebook) -> tuple[float, float]:
    """Seconds and bytes of a snapshot after a small change, as it is taken by itself."""
    assert q._app.snapshot_writer is not None
    times, added = [], []
    for _ in range(_ROUNDS):
        await run(notebook, _CHANGE)
        await notebook.checkpoints()  # waits for the one of that cell, which thinking hides
        begun = time.perf_counter()
        snapshot = await q._app.snapshot_writer.ensure_saved(notebook._data)
        times.append(time.perf_counter() - begun)
        assert snapshot is not None
        added.append(snapshot.added)
    return statistics.median(times), statistics.median(added)


async def while_written(q: Quire, notebook: Notebook) -> float:
    """Of small cells in that notebook, one after another, with and without snapshots of it being written."""
    await run(notebook, "x = 0")
    ratios = []
    for _ in range(_ROUNDS):
        alone = await cells(notebook)
        async with anyio.create_task_group() as group:
            group.start_soon(saving, q, notebook)
            written = await cells(notebook)
            group.cancel_scope.cancel()
        ratios.append(written / alone)
    return statistics.median(ratios)


async def saving(q: Quire, notebook: Notebook) -> None:
    """As it is done by itself after a run, but without any rest."""
    assert q._app.snapshot_writer is not None
    while True:
        await q._app.snapshot_writer.ensure_saved(notebook._data)
        await anyio.sleep(0)


async def cells(notebook: Notebook) -> float:
    return statistics.median([await timed(lambda: run(notebook, "x += 1")) for _ in range(_CELLS)])


async def restored(data: Path, name: str) -> float:
    """Seconds the first call takes longer than one in a notebook that has nothing to bring back."""
    times = []
    for _ in range(3):
        async with quire.open(data, checkpoints_snapshot_interval_seconds=0) as q:
            fresh = await q.create()
            await run(fresh, "1")
            notebook = await q.notebook(name)
            times.append(await timed(lambda notebook=notebook: run(notebook, _READ)))
    return statistics.median(times)


async def small_over_fresh(data: Path) -> float:
    async with quire.open(data) as q:
        await run(await q.notebook(), "import json\nx = [1, 2, 3]\ndef f(n):\n    return n + 1\n")
    over = []
    for _ in range(_ROUNDS):
        async with quire.open(data) as q:
            await run(await q.create(), "1")  # the zygote is warm
            await anyio.sleep(1)  # and a spare kernel is there
            fresh = await q.create()
            plain = await timed(lambda fresh=fresh: run(fresh, "1"))
            await anyio.sleep(1)
            notebook = await q.notebook()
            over.append(await timed(lambda notebook=notebook: run(notebook, "assert f(x[0]) == 2")) - plain)
    return statistics.median(over)


async def run(notebook: Notebook, code: str) -> None:
    cell = await notebook.add_cell(code, timeout=300)
    assert cell.state == "SUCCESS", await cell.text()
