"""Servers whose cells attack: with all walls and nothing granted, as root and as an ordinary user."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import quire
from quire.frontends.python import Quire
from tests.conftest import DEADLINE, call, server_environment
from tests.faults.conftest import Book
from tests.security import guests
from tests.security.guests import Outside
from tests.wasm.programs import assets_dir

ORDINARY = Path(__file__).with_name("ordinary.py")
UID = 64_123  # nobody's
WALLS = "cgroup,user,mount,pid,net,ipc,uid,rlimits,capabilities,no_new_privs,landlock,seccomp"
NOT_ORDINARY = ("cgroup", "uid")  # what only root can give, or has to have been given by root


@pytest.fixture(scope="module", params=["root", "ordinary"])
def user(request: pytest.FixtureRequest) -> str:
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("whoever runs these tests is not root")
    return str(request.param)


@pytest.fixture(scope="module")
def folder(user: str) -> Iterator[Path]:
    """One that the server's user has to itself."""
    made = Path(tempfile.mkdtemp(prefix="quire-security-"))
    if user == "ordinary" and os.getuid() == 0:
        os.chown(made, UID, UID)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@asynccontextmanager
async def walled(user: str, folder: Path, **settings: Any) -> AsyncIterator[Client[Any]]:
    """A client of a server that refuses to run anything without all walls that this user can have."""
    required = ",".join(name for name in WALLS.split(",") if user == "root" or name not in NOT_ORDINARY)
    given = {"sandbox": f"require:{required}", "mounts": "", "preload": "", "spare_kernels": "0"}
    given |= {"patience": 2 * DEADLINE, **settings}  # another test's bomb may go off beside
    env = server_environment(folder / "data", **given)
    command = ["-m", "quire"]
    if user == "ordinary" and os.getuid() == 0:
        command = [str(ORDINARY), str(UID), *command]
        env["HOME"] = str(folder)
    async with Client(StdioTransport(sys.executable, command, env=env, keep_alive=False)) as client:
        yield client


async def named(client: Client[Any], name: str) -> Book:
    await call(client, "create_notebook", name=name)  # or there is one
    return Book(client=client, name=name)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


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
            outside.data, assets_dir=assets_dir(), workspace_bytes=30_000_000, wasm_python="plain", **settings
        ) as found:
            yield found


@pytest.fixture(scope="module")
async def neighbour(opened: Quire, outside: Outside, runtime: str) -> guests.Book:
    """One that does nothing, in the same process as the attacker."""
    return await guests.new(opened, outside, "neighbour", runtime)


@pytest.fixture
async def attacker(opened: Quire, outside: Outside, neighbour: guests.Book, runtime: str) -> guests.Book:
    return await guests.new(opened, outside, f"attacker-{secrets.token_hex(4)}", runtime)
