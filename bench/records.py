"""Recording runs in the store: by one notebook after another run, and by fifty notebooks at once, which share commits.

A run is recorded twice, when it begins and when it ends. The end is on the disk before the next run begins.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from quire.core.model import LOCAL, CellId, CellState, NewCell, Notebook, NotebookId, Run, RunId
from quire.stores.sql import SqlStore

LIMIT = 0.5
_ROUNDS = 5
_NOTEBOOKS = 50
_RUNS_ALONE, _RUNS_EACH = 200, 20


async def main() -> list[tuple[str, float, float]]:
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(Path(folder))
        for number in range(_ROUNDS):
            alone = await _seconds_per_run(store, f"alone-{number}", 1, _RUNS_ALONE)
            together = await _seconds_per_run(store, f"together-{number}", _NOTEBOOKS, _RUNS_EACH)
            rounds.append((together / alone, alone, together))
        await store.close()
    ratio, alone, together = (statistics.median(values) for values in zip(*rounds, strict=True))
    what = f"time to record a run, {_NOTEBOOKS} notebooks at once / one ({together * 1e3:.2f} / {alone * 1e3:.2f} ms)"
    return [(what, ratio, LIMIT)]


async def _seconds_per_run(store: SqlStore, name: str, notebooks: int, runs: int) -> float:
    made = [await _create(store, f"{name}-{number}") for number in range(notebooks)]
    start = time.perf_counter()
    await asyncio.gather(*(_record(store, notebook, runs) for notebook in made))
    return (time.perf_counter() - start) / (notebooks * runs)


async def _create(store: SqlStore, name: str) -> Notebook:
    book = Notebook(id=NotebookId(name), name=name, owner=LOCAL, runtime="python", created_at=time.time())
    return await store.notebooks.create_notebook(book)


async def _record(store: SqlStore, notebook: Notebook, runs: int) -> None:
    for number in range(runs):
        begun = Run(
            id=RunId(f"{notebook.id}-{number}"),
            cell=CellId(""),
            count=0,
            source="1+1",
            author="bench",
            started_at=time.time(),
        )
        cell = await store.runs.begin_run(notebook.id, NewCell(source="1+1"), begun, limit=10_000)
        assert cell.run is not None
        await store.runs.finish_run(notebook.id, replace(cell.run, state=CellState.SUCCESS, seconds=0.001))
