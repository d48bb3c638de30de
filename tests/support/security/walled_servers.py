"""Servers that refuse to start a kernel without every sandbox layer, as root and as an ordinary user."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.support.notebooks import Book
from tests.support.servers import call, server_environment
from tests.support.waiting import DEADLINE

ORDINARY = Path(__file__).with_name("ordinary.py")
UID = 64_123  # of no user
WALLS = "cgroup,user,mount,pid,net,ipc,uid,rlimits,capabilities,no_new_privs,landlock,seccomp"
NOT_ORDINARY = ("cgroup", "uid")  # what only root can give, or has to have been given by root


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
