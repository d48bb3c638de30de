"""A new notebook's first pandas result on a warm Quire against a new ipykernel's, taking turns."""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from fastmcp import Client
from jupyter_client.manager import AsyncKernelManager

from bench.servers import quire, timed

LIMIT = 1 / 20
_KERNELS = 5
_NOTEBOOKS = 4  # new notebooks for each ipykernel started
_DEADLINE = 60.0  # seconds anything is waited for
_CODE = "import pandas as pd; pd.DataFrame({'a':[1]}).shape"


async def measure() -> float:
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client:
            for number in range(3):  # not counted: the zygote warms up, and the system's cache of files
                await notebook(client, f"warm-{number}")
            await ipykernel()
            for turn in range(_KERNELS):
                for number in range(_NOTEBOOKS):
                    ours.append(await timed(partial(notebook, client, f"{turn}-{number}")))
                theirs.append(await ipykernel())
    return statistics.median(ours) / statistics.median(theirs)


async def notebook(client: Client[Any], name: str) -> None:
    await client.call_tool("create_notebook", {"name": name})
    answer = await client.call_tool("execute", {"code": _CODE})
    assert answer.structured_content["return_value"] == [1, 1], answer


async def ipykernel() -> float:
    """Seconds to the result and idle again; ending the kernel is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        manager = AsyncKernelManager(transport="ipc", connection_file=f"{folder}/kernel.json")
        try:
            return await timed(lambda: _first_result(manager))
        finally:
            await manager.shutdown_kernel(now=True)


async def _first_result(manager: AsyncKernelManager) -> None:
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    shown: list[str] = []

    def see(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    try:
        await client.wait_for_ready(timeout=_DEADLINE)
        await client.execute_interactive(_CODE, output_hook=see, timeout=_DEADLINE)
    finally:
        client.stop_channels()
    assert shown == ["(1, 1)"], shown


async def main() -> list[tuple[str, float, float]]:
    return [("new notebook to first pandas result / new ipykernel to the same, p50", await measure(), LIMIT)]
