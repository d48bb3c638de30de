"""Ways to wait for a condition, each with the same deadline."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

DEADLINE = 60.0  # seconds anything is waited for


def wait_until(true: Any, what: str) -> None:
    """Poll a condition inside a deadline."""
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, f"not within {DEADLINE:g} s: {what}"
        time.sleep(0.02)


async def until(true: Callable[[], Awaitable[Any]], what: str) -> None:
    """Wait for a condition that is asked of a client, inside a deadline."""
    end = time.monotonic() + DEADLINE
    while not await true():
        assert time.monotonic() < end, f"not within {DEADLINE:g} s: {what}"
        await anyio.sleep(0.02)


async def appears(path: Path) -> None:
    """Wait for a file."""

    async def there() -> bool:
        return path.exists()

    await until(there, f"{path} is there")


async def reached(true: Callable[[], Any], what: str) -> None:
    """Wait for a fact, while the client goes on."""
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, f"not within {DEADLINE:g} s: {what}"
        await anyio.sleep(0.02)
