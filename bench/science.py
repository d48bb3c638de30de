"""Python with libraries in WebAssembly against the plain one: a new session, a call, a library's import, memory.

It needs the extra wasm-science; compile first, by `quire assets` with QUIRE_WASM_PYTHON at plain and at science.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from fastmcp import Client

import quire as quires
from bench.processes import children, pss
from bench.servers import quire, timed

_ROUNDS = 200
_NEW = 40
_SESSIONS = 40

Found = list[tuple[str, float, float]]


async def main() -> Found:
    return [*await _calls(), *await _memory()]


async def _calls() -> Found:
    """One and the other by turns, so that what else the machine does is in both."""
    new: dict[str, list[float]] = {"plain": [], "science": []}
    run: dict[str, list[float]] = {"plain": [], "science": []}
    imported: list[float] = []
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        async with (
            quire(Path(one), toolsets="sandbox", wasm_python="plain") as plain,
            quire(Path(two), toolsets="sandbox", wasm_python="science") as science,
        ):
            clients: dict[str, Client[Any]] = {"plain": plain, "science": science}
            for number in range(_NEW):
                for kind, client in clients.items():
                    new[kind].append(await timed(lambda client=client, name=f"s{number}": _session(client, name)))  # type: ignore[misc]
                first = {"code": "import numpy, pandas, scipy, sklearn", "session_id": f"s{number}"}
                imported.append(await timed(lambda first=first: science.call_tool("execute_code", first)))  # type: ignore[misc]
            for _ in range(_ROUNDS):
                for kind, client in clients.items():
                    run[kind].append(
                        await timed(lambda client=client: client.call_tool("execute_code", {"code": "1+1"}))
                    )  # type: ignore[misc]
    return [
        ("new session with its first value, science / plain, p50", _ratio(new, 5), 1.5),
        ("execute_code('1+1'), science / plain, p50", _ratio(run, 20), 1.5),
        ("first import of numpy, pandas, scipy and sklearn / 1+1, p50", _p50(imported) / _p50(run["science"]), 3.0),
    ]


async def _session(client: Client[Any], name: str) -> None:
    await client.call_tool("create_session", {"session_id": name})
    await client.call_tool("execute_code", {"code": "1+1", "session_id": name})


async def _memory() -> Found:
    """Of what a session adds to the process it is in, with its libraries imported."""
    held = []
    with tempfile.TemporaryDirectory() as folder:
        async with quires.open(folder, preload="", spare_kernels=0, auto_save=0, wasm_python="science") as q:
            for number in range(_SESSIONS):
                book = await q.create(f"s{number}", runtime="wasm-python")
                cell = await book.add_cell("import numpy as np, pandas as pd\nx = np.arange(10)")
                assert cell.state == "SUCCESS", await cell.text()
                held.append(sum(map(pss, _hosts())) / 2**20)
    return [(f"memory of one more session, of {_SESSIONS}, MiB", (held[-1] - held[4]) / (len(held) - 5), 4.0)]


def _hosts() -> list[int]:
    return [pid for pid in children(os.getpid()) if b"wasm-python" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _ratio(found: dict[str, list[float]], after: int) -> float:
    return _p50(found["science"][after:]) / _p50(found["plain"][after:])


def _p50(values: list[float]) -> float:
    return statistics.median(values)
