"""Where a behaviour is tried: a Jupyter server, the way Quire reaches it, and a person beside it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.clients.jupyter.client import JupyterClient, remote_client
from quire.clients.jupyter.ports import Document, KernelConnection, Message
from tests.support.jupyter.servers import DEADLINE, JupyterServer

REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Place:
    """`jupyter` is Quire's way; `person` reaches the same server from outside, as a page does."""

    jupyter: JupyterClient
    person: JupyterClient
    server: JupyterServer
    live: bool
    serverapp: Any = None  # of a behaviour that runs inside the server


Behaviour = Callable[[Place], Awaitable[None]]


@asynccontextmanager
async def outside(server: JupyterServer) -> AsyncIterator[Place]:
    async with beside(server) as person:
        jupyter = remote_client(server.url, server.token, timeout=DEADLINE)
        try:
            yield Place(jupyter=jupyter, person=person, server=server, live=server.collaboration)
        finally:
            await jupyter.close()


@asynccontextmanager
async def beside(server: JupyterServer) -> AsyncIterator[JupyterClient]:
    person = remote_client(server.url, server.token, timeout=DEADLINE, agent="Ann")
    try:
        yield person
    finally:
        await person.close()


def inside_of(server_options: dict[str, Any]) -> dict[str, Any]:
    """Options of a server that runs behaviours inside itself."""
    return {
        **server_options,
        "extensions": {"tests.support.jupyter.inside": True},
        "environment": {"PYTHONPATH": str(REPOSITORY)},
    }


async def run_inside(server: JupyterServer, behaviour: Behaviour) -> None:
    """In the server's own process; what fails there fails here."""
    told = {
        "module": behaviour.__module__,
        "name": behaviour.__name__,
        "port": server.port,
        "token": server.token,
        "folder": str(server.folder),
        "collaboration": server.collaboration,
    }
    answer = await asyncio.to_thread(server.call, "POST", "behaviour", told)
    if answer["failure"]:
        raise AssertionError(f"inside the server:\n{answer['failure']}")


async def tried(server: JupyterServer, behaviour: Behaviour) -> None:
    """Inside where the server can, else from outside."""
    if server.extensions:
        await run_inside(server, behaviour)
    else:
        async with outside(server) as place:
            await behaviour(place)


def behaviours(module: str) -> list[str]:
    """The names of all that a module has."""
    every = vars(sys.modules[module]).items()
    return [
        name for name, each in every if inspect.isfunction(each) and [*inspect.signature(each).parameters] == ["at"]
    ]


async def until(true: Callable[[], Any], what: str = "") -> None:
    """Look until it is so."""
    async with asyncio.timeout(DEADLINE):
        while not true():
            await asyncio.sleep(0.01)


async def seen(document: Document, true: Callable[[], Any]) -> None:
    """Wait for changes of others until it is so."""
    heard = asyncio.Event()
    end = document.watch(heard.set)
    try:
        async with asyncio.timeout(DEADLINE):
            while not true():
                heard.clear()
                await heard.wait()
    finally:
        end()


def sources(document: Document) -> list[str]:
    return [cell["source"] for cell in document.cells()]


async def run(kernel: KernelConnection, code: str, **how: Any) -> list[Message]:
    """All that the kernel says of it."""
    execution = await kernel.execute(code, **how)
    said = []
    async with asyncio.timeout(DEADLINE):
        while not said or said[-1].kind != "execute_reply":
            said.append(await execution.next_message())
    return said


def printed(said: list[Message]) -> str:
    return "".join(each.content["text"] for each in said if each.kind == "stream")
