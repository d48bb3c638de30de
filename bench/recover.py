"""A crash to the next result that uses what an earlier cell made, against a killed ipykernel restarted by its manager.

The ipykernel's result needs nothing of before: its variables are gone. Taking turns. Before each crash `state` is
asked: that waits for the checkpoint of the cell before, which an agent's own thinking hides.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from bench.servers import quire, timed

LIMIT = 1 / 10
_TURNS = 5
_CRASHES = 4  # for each restart of the ipykernel
_DEADLINE = 60.0  # seconds anything is waited for
_CRASH = "import ctypes; ctypes.string_at(0)"


async def measure() -> float:
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client, ipykernel() as (manager, kernel):
            await client.call_tool("execute", {"code": "kept = 41"})
            await crash(client)  # not counted: first calls import and compile
            for _ in range(_TURNS):
                for _ in range(_CRASHES):
                    await client.call_tool("state", {})
                    ours.append(await timed(lambda: crash(client)))
                theirs.append(await timed(lambda: restart(manager, kernel)))
    return statistics.median(ours) / statistics.median(theirs)


async def crash(client: Client[Any]) -> None:
    crashed = await client.call_tool("execute", {"code": _CRASH}, raise_on_error=False)
    assert crashed.structured_content["state"] == "CRASHED", crashed
    answer = await client.call_tool("execute", {"code": "kept + 1"})
    assert answer.structured_content["return_value"] == 42, answer


async def restart(manager: AsyncKernelManager, kernel: AsyncKernelClient) -> None:
    os.kill(manager.provisioner.pid, signal.SIGKILL)
    await manager.restart_kernel(now=True)
    await kernel.wait_for_ready(timeout=_DEADLINE)
    shown: list[str] = []

    def see(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    await kernel.execute_interactive("41 + 1", output_hook=see, timeout=_DEADLINE)
    assert shown == ["42"], shown


@asynccontextmanager
async def ipykernel() -> AsyncIterator[tuple[AsyncKernelManager, AsyncKernelClient]]:
    with tempfile.TemporaryDirectory() as folder:
        manager = AsyncKernelManager(transport="ipc", connection_file=f"{folder}/kernel.json")
        await manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=_DEADLINE)
            yield manager, client
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)


async def main() -> list[tuple[str, float, float]]:
    return [("crash to next result, with its variables / restarted ipykernel, without, p50", await measure(), LIMIT)]
