"""A cell that writes frames to its kernel's channel or relay costs its own notebook at most, and not the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from bench.hostile_frames import FLOODS, flooding, flooding_between_runs
from fastmcp import Client

from tests.support.notebooks import Book, new_book
from tests.support.processes import forget_peak, resident
from tests.support.servers import text
from tests.support.waiting import DEADLINE

MAX_GROWTH_BYTES = 100_000_000


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {"network": "", "spare_kernels": 1}


@pytest.mark.parametrize("kind", FLOODS)
async def test_flood_of_frames_leaves_other_notebooks_alone(client: Client[Any], tmp_path: Path, kind: str) -> None:
    stop = tmp_path / "stop"
    async with new_book(client) as hostile, new_book(client) as other:
        assert await other.value("40 + 2") == 42
        server = await other.server()
        before = resident(server)
        forget_peak(server)
        async with anyio.create_task_group() as group:
            group.start_soon(hostile.run, flooding(kind, stop), DEADLINE * 2)
            try:
                with anyio.fail_after(DEADLINE):
                    for number in range(20):
                        assert await other.value(f"{number} + 2") == number + 2
                        await anyio.sleep(0.1)  # the flood goes on meanwhile
            finally:
                stop.touch()
        assert resident(server, "VmHWM") - before < MAX_GROWTH_BYTES
        again = await hostile.run("40 + 2", DEADLINE)
        assert again.structured_content["return_value"] == 42, text(again)


async def test_flood_while_a_question_is_open_is_not_kept(book: Book, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    server = await book.server()
    before = resident(server)
    forget_peak(server)
    await book.run(flooding_between_runs(stop), DEADLINE)
    try:
        with anyio.fail_after(DEADLINE):
            for _ in range(20):
                assert not (await book.ask("state")).is_error
    finally:
        stop.touch()
    assert resident(server, "VmHWM") - before < MAX_GROWTH_BYTES
    assert await book.value("40 + 2") == 42
