"""Fixtures of the fault tests: one server per module that outlives each hostile cell, and a notebook per test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fastmcp import Client

from tests.support.notebooks import Book, new_book
from tests.support.servers import IN_MEMORY, SharedServer, roomy_client


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    """Settings of the module's server. A module overrides this fixture for others."""
    return IN_MEMORY


@pytest.fixture(scope="module")
async def shared_server(
    tmp_path_factory: pytest.TempPathFactory, server_settings: dict[str, Any]
) -> AsyncIterator[SharedServer]:
    """One server for the tests of a module, with room for every checkpoint."""
    async with AsyncExitStack() as stack:
        yield SharedServer(tmp_path_factory, stack, server_settings, roomy_client)


@pytest.fixture
async def server(shared_server: SharedServer) -> Client[Any]:
    return await shared_server.client()


@pytest.fixture
async def book(server: Client[Any]) -> AsyncIterator[Book]:
    """A notebook of its own for each case."""
    async with new_book(server) as made:
        yield made
