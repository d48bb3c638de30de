"""Fixtures of the fault tests: one server per module that outlives each hostile cell, and a notebook per test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fastmcp import Client

from tests.support.notebooks import Book, new_book
from tests.support.servers import IN_MEMORY, Servers


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    """Settings of the module's server. A module overrides this fixture for others."""
    return IN_MEMORY


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory, server_settings: dict[str, Any]) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(tmp_path_factory, stack, server_settings)


@pytest.fixture
async def server(servers: Servers) -> Client[Any]:
    return await servers.well()


@pytest.fixture
async def book(server: Client[Any]) -> AsyncIterator[Book]:
    """A notebook of its own for each case."""
    async with new_book(server) as made:
        yield made
