"""Whole notebooks of the reference corpus against nbclient with ipykernel, start-up included; and large notebooks.

One Quire for all notebooks against a kernel for each, taking turns notebook by notebook; then a few of them by
`quire run` against `jupyter execute`, each a fresh process. A large notebook is imported and added to over stdio.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from fastmcp import Client
from tests import corpus
from tests.support import ipykernel_reference

from bench.servers import quire, timed
from quire import compose
from quire.settings import load

LIMIT = 0.8
IMPORT_LIMIT = 1.0  # seconds
ADD_LIMIT = 1.2
_CELLS = 300
_BYTES = 10_000_000
_ADDED = 100  # cells


async def notebooks() -> tuple[float, float]:
    """All of the corpus: Quire's time over nbclient's in sum, and the median of the notebooks' own ratios."""
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        async with compose.app(load({"store_data_dir": folder}, environ={})) as app:
            around = time.perf_counter() - begun
            for name in corpus.NAMES:
                cells = corpus.read(name)
                ours.append(
                    await timed(lambda name=name, cells=cells: ipykernel_reference.through_quire(app, name, cells))
                )
                theirs.append(
                    await timed(lambda cells=cells: asyncio.to_thread(ipykernel_reference.through_ipykernel, cells))
                )
            begun = time.perf_counter()
        around += time.perf_counter() - begun
    return (sum(ours) + around) / sum(theirs), statistics.median(map(float.__truediv__, ours, theirs))


async def commands() -> float:
    """Each in a fresh process: `quire run` over `jupyter execute`, in sum."""
    ours = theirs = 0.0
    with tempfile.TemporaryDirectory() as folder:
        env = ipykernel_reference.environment(folder)
        for name in corpus.NAMES:
            file = Path(folder, f"{name}.ipynb")
            nbformat.write(nbformat.from_dict(ipykernel_reference.document(corpus.read(name))), file)
            run = [sys.executable, "-m", "quire", "run", str(file), "-o", f"{folder}/ours.ipynb", "--allow-errors"]
            execute = [sys.executable, "-m", "jupyter", "execute", "--allow-errors", "--output=theirs", str(file)]
            ours += _process(run, folder, env)
            theirs += _process(execute, folder, env)
            _check(Path(folder, "ours.ipynb"), Path(folder, "theirs.ipynb"))
    return ours / theirs


def _process(command: list[str], folder: str, env: dict[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=env, capture_output=True)
    return time.perf_counter() - begun


def _check(*both: Path) -> None:
    """They ran to the end."""
    counts = [[cell.get("execution_count") for cell in json.loads(path.read_text())["cells"]] for path in both]
    assert counts[0] == counts[1], counts


async def large() -> tuple[float, float]:
    """Seconds the import of a large notebook takes; adding a cell to it over adding one to an empty one, p50."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        (work / "large.ipynb").write_text(large_notebook())
        async with quire(Path(folder, "data"), workspace=work) as client:
            await client.call_tool("import_ipynb", {"path_or_json": _SMALL, "notebook": "main"})  # imports nbformat
            await client.call_tool("create_notebook", {"name": "large"})
            taken = await timed(lambda: client.call_tool("import_ipynb", {"path_or_json": "large.ipynb"}))
            return taken, await _adding(client)


async def _adding(client: Client[Any]) -> float:
    into: dict[str, list[float]] = {"large": [], "empty": []}
    for number in range(_ADDED):
        await client.call_tool("create_notebook", {"name": f"empty-{number}", "use": False})
        for kind, name in (("large", "large"), ("empty", f"empty-{number}")):
            cell = {"code": f"x = {number}", "execute": False, "notebook": name}
            into[kind].append(await timed(lambda cell=cell: client.call_tool("add_cell", cell)))
    return statistics.median(into["large"]) / statistics.median(into["empty"])


def large_notebook() -> str:
    """300 cells with 10 MB of outputs: prints, tables and pictures, by turns."""
    size = _BYTES // _CELLS
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: _output("stream", name="stdout", text="a line of forty characters, and its end\n" * (size // 40)),
        lambda: _output("display_data", data={"text/plain": "x", "text/html": "<td>1</td>" * (size // 10)}),
        lambda: _output("display_data", data={"text/plain": "x", "image/png": _picture(size * 3 // 4)}),
    )
    cells = [
        nbformat.v4.new_code_cell(f"x = {n}", execution_count=n + 1, outputs=[kinds[n % len(kinds)]()])
        for n in range(_CELLS)
    ]
    return str(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


_output = nbformat.v4.new_output


def _picture(size: int) -> str:
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(size)).decode()


_SMALL = nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]))


async def main() -> list[tuple[str, float, float]]:
    taken, adding = await large()
    each = f"of {len(corpus.NAMES)} notebooks"
    total, median = await notebooks()
    return [
        (f"seconds to import {_CELLS} cells with {_BYTES:,} bytes of outputs", taken, IMPORT_LIMIT),
        ("adding a cell to that notebook / to an empty one, p50", adding, ADD_LIMIT),
        (f"whole-notebook time {each} / nbclient with ipykernel, in sum", total, LIMIT),
        (f"whole-notebook time {each} / nbclient with ipykernel, p50", median, LIMIT),
        (f"`quire run` {each} / `jupyter execute`, in sum", await commands(), LIMIT),
    ]
