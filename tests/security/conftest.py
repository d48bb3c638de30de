"""Servers whose cells attack: with all walls and nothing granted, as root and as an ordinary user."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

import quire
from quire.frontends.python import Quire
from tests.support.notebooks import Book
from tests.support.security import guests
from tests.support.security.guests import Outside
from tests.support.security.walled_servers import UID, named, walled
from tests.support.wasm.assets import assets_dir


@pytest.fixture(scope="module", params=["root", "ordinary"])
def user(request: pytest.FixtureRequest) -> str:
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("these tests need root")
    return str(request.param)


@pytest.fixture(scope="module")
def folder(user: str) -> Iterator[Path]:
    """One that the server's user has to itself."""
    made = Path(tempfile.mkdtemp(prefix="quire-security-"))
    if user == "ordinary" and os.getuid() == 0:
        os.chown(made, UID, UID)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
async def client(user: str, folder: Path) -> AsyncIterator[Client[Any]]:
    async with walled(user, folder) as connected:
        yield connected


@pytest.fixture
async def book(client: Client[Any]) -> Book:
    return await named(client, "attacker")


# In WebAssembly


@pytest.fixture(scope="module", params=guests.RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def outside(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Outside:
    folder = tmp_path_factory.mktemp(runtime)
    mount = folder / "mount"
    mount.mkdir()
    for file in (folder / "secret", mount / "kept"):
        file.write_text(guests.SECRET)
    return Outside(folder=folder, secret=folder / "secret", mount=mount, kept=mount / "kept")


@pytest.fixture(scope="module")
async def opened(outside: Outside) -> AsyncIterator[Quire]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_SECRET_TOKEN", guests.SECRET)
        settings: dict[str, Any] = {"preload": "", "spare_kernels": 0, "mounts": str(outside.mount), "max_calls": 50}
        async with quire.open(
            outside.data,
            store_assets_dir=assets_dir(),
            limits_max_workspace_bytes=30_000_000,
            wasm_python="plain",
            **settings,
        ) as found:
            yield found


@pytest.fixture(scope="module")
async def neighbour(opened: Quire, outside: Outside, runtime: str) -> guests.Book:
    """One that does nothing, in the same process as the attacker."""
    return await guests.new(opened, outside, "neighbour", runtime)


@pytest.fixture
async def attacker(opened: Quire, outside: Outside, neighbour: guests.Book, runtime: str) -> guests.Book:
    return await guests.new(opened, outside, f"attacker-{secrets.token_hex(4)}", runtime)
