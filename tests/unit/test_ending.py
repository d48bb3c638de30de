"""An end that takes long says what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quire import cli


@asynccontextmanager
async def slow_to_close() -> AsyncIterator[None]:
    try:
        yield
    finally:
        await asyncio.Event().wait()


async def test_where_it_stands_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def serve() -> None:
        async with slow_to_close():
            pass

    task = asyncio.ensure_future(serve())
    await asyncio.sleep(0)
    cli._say_where(task)
    assert "slow_to_close" in caplog.text and "Event.wait" in caplog.text
    task.cancel()
    await asyncio.wait([task])
    caplog.clear()
    cli._say_where(task)
    assert not caplog.text
