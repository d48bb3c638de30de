"""Memory of idle notebooks against an ipykernel's, each with numpy and pandas imported; and 300 live notebooks.

A notebook's own memory is what one more adds to the Pss of all processes: supervisor, live process and checkpoint. The
ipykernel is weighed after Quire ended, so that neither shares files with the other.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from bench import processes
from bench.crowd import server
from bench.recover import ipykernel
from bench.servers import quire

LIMIT = 1 / 10
_FEW, _MANY = 5, 25  # idle notebooks
_MOMENT = 2.0  # seconds
_LIVE = 300  # notebooks of one server
_CELLS = 20  # runs of each
_CLIENTS = 4
_DEADLINE = 60.0  # seconds anything is waited for
_IMPORT = "import numpy as np, pandas as pd"


async def measure() -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder), max_kernels_per_user=0, max_kernels=0) as client:
            held = [await _held_by(client, number) for number in (_FEW, _MANY)]
            each = (held[1] - held[0]) / (_MANY - _FEW)
    async with ipykernel() as (manager, kernel):
        reply = await kernel.execute_interactive(_IMPORT, timeout=_DEADLINE)
        assert reply["content"]["status"] == "ok", reply
        return each / processes.pss(manager.provisioner.pid)


async def _held_by(client: Client[Any], notebooks: int) -> int:
    """Bytes of all kernels' processes and the zygote, when there are so many idle notebooks, each protected."""
    there = len((await client.call_tool("list_notebooks", {})).structured_content["notebooks"])
    for number in range(there, notebooks):
        await client.call_tool("create_notebook", {"name": f"idle-{number}"})
        await client.call_tool("execute", {"code": _IMPORT})
        await client.call_tool("list_checkpoints", {})  # waits for the cell's
    await asyncio.sleep(_MOMENT)  # the next spare is there
    return sum(map(processes.pss, processes.family(processes.zygote(processes.quire_server()))))


async def crowd() -> tuple[int, int, int]:
    """Wrong answers, answers, and bytes of the machine's memory all the notebooks took."""
    before = processes.available()
    count = {"answers": 0, "wrong": 0}
    with tempfile.TemporaryDirectory() as folder:
        async with server(Path(folder), max_kernels=0, max_kernels_per_user=0) as url:
            async with asyncio.TaskGroup() as group:
                for number in range(_CLIENTS):
                    group.create_task(_visit(url, range(number, _LIVE, _CLIENTS), count))
            taken = before - processes.available()
    return count["wrong"], count["answers"], taken


async def _visit(url: str, numbers: range, count: dict[str, int]) -> None:
    """Make these notebooks, then one cell in each, and again."""
    async with Client(StreamableHttpTransport(url)) as client:
        for number in numbers:
            await client.call_tool("create_notebook", {"name": f"live-{number}", "use": False})
            await _run(client, number, f"{_IMPORT}; ran = []", [], count)
        for turn in range(_CELLS):
            for number in numbers:
                token = f"{number} ran {turn}"
                await _run(client, number, f"ran.append({token!r}); [len(ran), ran[-1]]", [turn + 1, token], count)


async def _run(client: Client[Any], number: int, code: str, right: list[Any], count: dict[str, int]) -> None:
    answer = await client.call_tool("execute", {"code": code, "notebook": f"live-{number}"}, raise_on_error=False)
    said = answer.structured_content or {}
    count["answers"] += 1
    if not said.get("success") or (said.get("return_value") or []) != right:
        count["wrong"] += 1
        print(f"wrong: {code!r} was answered by {said or answer.content}")


async def main() -> list[tuple[str, float, float]]:
    ratio = await measure()
    wrong, answers, taken = await crowd()
    return [
        ("memory of an idle notebook / of an ipykernel, numpy and pandas imported", ratio, LIMIT),
        (f"wrong answers of {answers:,} of {_LIVE} live notebooks ({taken / 2**30:.1f} GiB taken)", wrong, 0),
    ]
