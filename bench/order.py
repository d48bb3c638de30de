"""Ten thousand `print(i)` over one stdio client: each answer against its number, the last calls against the first."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fastmcp import Client

from bench.servers import quire

GROWTH = 1.5  # nothing may cost more for the cells already there
_CELLS = 10_000  # as many as a notebook may have
_ENDS = 1_000  # calls compared, of the first and of the last
_SAMPLE = 200  # cells read again at the end


async def measure() -> tuple[int, float]:
    """How many outputs were lost or out of order; p50 of the last calls over that of the first."""
    wrong, seconds = 0, []
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client:
            await client.call_tool("create_notebook", {"name": "warm", "use": False})
            for _ in range(200):  # not counted: first calls import and compile
                await client.call_tool("execute", {"code": "print()", "notebook": "warm"})
            for number in range(_CELLS):
                start = time.perf_counter()
                answer = await client.call_tool("execute", {"code": f"print({number})"})
                seconds.append(time.perf_counter() - start)
                said = answer.structured_content
                wrong += (said["stdout"], said["cell_number"]) != (f"{number}\n", number)
            wrong += await missing(client) + await misread(client)
    return wrong, statistics.median(seconds[-_ENDS:]) / statistics.median(seconds[:_ENDS])


async def missing(client: Client[Any]) -> int:
    """Cells that the journal does not have, or not in the order they ran."""
    page = (await client.call_tool("list_cells", {"limit": _CELLS + 1})).structured_content
    ran = [(cell["cell_number"], cell["execution_count"], cell["state"]) for cell in page["cells"]]
    right = [(number, number + 1, "SUCCESS") for number in range(_CELLS)]
    return abs(page["total"] - _CELLS) + sum(a != b for a, b in zip(ran, right, strict=False)) + abs(_CELLS - len(ran))


async def misread(client: Client[Any]) -> int:
    """Cells of a sample that do not come back as they were run."""
    wrong = 0
    for number in random.sample(range(_CELLS), _SAMPLE):
        cell = (await client.call_tool("get_cell", {"cell_id_or_number": number})).structured_content
        printed = "".join(output.get("text", "") for output in cell["outputs"])
        wrong += (cell["code"], printed) != (f"print({number})", f"{number}\n")
    return wrong


async def main() -> list[tuple[str, float, float]]:
    wrong, growth = await measure()
    return [
        (f"outputs lost or out of order, of {_CELLS:,}", wrong, 0),
        (f"last {_ENDS:,} calls / first {_ENDS:,}, p50", growth, GROWTH),
    ]
