"""Real Jupyter servers, one of each kind for all tests of a worker; tests that break theirs start their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from tests.support.jupyter.quires import quire, release_notebooks
from tests.support.jupyter.servers import JupyterServer, jupyter
from tests.support.servers import SharedServer


@pytest.fixture(scope="session")
def collaborating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """With jupyter-collaboration."""
    with jupyter(tmp_path_factory.mktemp("collaborating")) as server:
        yield server


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """Without collaboration."""
    with jupyter(tmp_path_factory.mktemp("plain"), collaboration=False) as server:
        yield server


@pytest.fixture(scope="session")
def below_a_base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """With collaboration, a password beside the token, and everything below /user/ann/, as JupyterHub has it."""
    with jupyter(tmp_path_factory.mktemp("below"), base_url="/user/ann/", password="sesame") as server:
        yield server


@pytest.fixture(scope="module")
async def shared_quire(
    tmp_path_factory: pytest.TempPathFactory, collaborating: JupyterServer, server_settings: dict[str, Any]
) -> AsyncIterator[SharedServer]:
    """One Quire over stdio for the tests of a module, connected to the collaborating server."""

    def start(folder: Path, **settings: Any) -> Client[Any]:
        return quire(folder, collaborating, **settings)

    async with AsyncExitStack() as stack:
        yield SharedServer(tmp_path_factory, stack, server_settings, start)


@pytest.fixture
async def client(shared_quire: SharedServer) -> AsyncIterator[Client[Any]]:
    """A client of the module's Quire with the tool set `jupyter`. No notebook is in use before and after the test."""
    connected = await shared_quire.client()
    yield connected
    await release_notebooks(connected)
