"""Cells that compute for long against an ipykernel's, alone and beside two busy loops, taking turns cell by cell.

The loops belong to a session of their own, as another program's processes do. With the sandbox, kernels are in a
control group where the system gives one; without it only their niceness counts, so both are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.recover import ipykernel
from bench.servers import quire, timed

LIMIT = 1.2
_ROUNDS = 3
_PAUSE = 1.0  # seconds between cells: a checkpoint is taken meanwhile
_DEADLINE = 600.0  # seconds anything is waited for
_BEGIN = """
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
X, y = make_classification(n_samples=4000, n_features=30, random_state=0)
"""
_CELLS = {
    "random forest": "RandomForestClassifier(100, random_state=0).fit(X, y).score(X, y)",
    "boosting on threads": "HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(X, y).score(X, y)",
    "k-means on threads": "KMeans(20, n_init=10, random_state=0).fit(X).inertia_ > 0",
    "matrices on threads": "float(np.linalg.svd(np.random.default_rng(0).normal(size=(700, 700)))[1][0]) > 0",
    "cross validation": "cross_val_score(LogisticRegression(max_iter=500), X, y, cv=8).mean() > 0",
}


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def measure(loops: int, **settings: object) -> dict[str, float]:
    """Seconds of each cell, summed over the rounds, over the ipykernel's."""
    ours, theirs = dict.fromkeys(_CELLS, 0.0), dict.fromkeys(_CELLS, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder), **settings) as client, ipykernel() as (_, kernel):

            async def run(code: str) -> None:
                answer = await client.call_tool("execute", {"code": code, "timeout": _DEADLINE})
                assert answer.structured_content["state"] == "SUCCESS", answer

            async def run_in_ipykernel(code: str) -> None:
                reply = await kernel.execute_interactive(code, output_hook=lambda message: None, timeout=_DEADLINE)
                assert reply["content"]["status"] == "ok", reply

            for code in (_BEGIN, *_CELLS.values()):  # not counted: libraries load and start their threads
                await run(code)
                await run_in_ipykernel(code)
            with busy_loops(loops):
                for _ in range(_ROUNDS):
                    for name, code in _CELLS.items():
                        ours[name] += await timed(lambda code=code: run(code))
                        theirs[name] += await timed(lambda code=code: run_in_ipykernel(code))
                        await asyncio.sleep(_PAUSE)
    return {name: ours[name] / theirs[name] for name in _CELLS} | {"": sum(ours.values()) / sum(theirs.values())}


async def main() -> list[tuple[str, float, float]]:
    found = []
    for loops in (0, 2):
        for sandbox in ("auto", "off"):
            ratios = await measure(loops, sandbox=sandbox)
            each = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items() if name)
            what = f"long cells / ipykernel's, in sum, {loops} busy loops beside them, sandbox {sandbox} ({each})"
            found.append((what, ratios[""], LIMIT))
    return found
