"""The stores that the contract suites run on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quire.stores.sql import SqlStore


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[[], SqlStore]:
    """Opens the same data again, as another server does."""
    return lambda: SqlStore(tmp_path)


@pytest.fixture
async def store(open_store: Callable[[], SqlStore]) -> AsyncIterator[SqlStore]:
    opened = open_store()
    yield opened
    await opened.close()
