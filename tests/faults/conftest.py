"""What the fault tests share: a server that outlives each hostile cell, and ways to wait for a fact."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.conftest import DEADLINE, call, stdio_client, text

QUICK: dict[str, Any] = {"grace": 0.5, "preload": ""}
"""Settings of a server that starts at once and kills soon."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True, kw_only=True)
class Book:
    """One notebook of a server, seen through its client."""

    client: Client[Any]
    name: str | None = None  # None: whichever is the client's current one

    async def run(self, code: str, timeout: float = 30) -> Any:
        return await self.ask("execute", code=code, timeout=timeout)

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return await call(self.client, tool, notebook=self.name, **arguments)

    async def value(self, code: str) -> Any:
        result = await self.run(code)
        assert not result.is_error, text(result)[-600:]
        return result.structured_content["return_value"]

    async def cell(self, number: int) -> dict[str, Any]:
        shown = await self.ask("get_cell", cell_id_or_number=number)
        assert not shown.is_error, shown
        found: dict[str, Any] = shown.structured_content
        return found

    async def shown(self, number: int) -> str:
        """The text of a cell's outputs, of a running one too."""
        return "".join(output.get("text", "") for output in (await self.cell(number))["outputs"])

    async def whole(self, number: int, index: int = 0) -> list[Any]:
        """One output as its resource gives it: every form, nothing shortened."""
        place = f"{self.name}/cell" if self.name else "cell"
        return await self.client.read_resource(f"notebook://{place}/{number}/output/{index}")

    async def server(self) -> int:
        """The server's process: the parent of the one this kernel was forked from."""
        return int(await self.value("open(f'/proc/{__import__(\"os\").getppid()}/stat').read().split()[3]"))


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(tmp_path_factory, stack)


class Servers:
    """One server for all cases of a file; only where a case has ended it, another for the next."""

    def __init__(self, folders: pytest.TempPathFactory, stack: AsyncExitStack) -> None:
        self._folders = folders
        self._stack = stack
        self._client: Client[Any] | None = None

    async def well(self) -> Client[Any]:
        if self._client is not None:
            with suppress(Exception):
                await call(self._client, "list_notebooks")
                return self._client
        fresh = stdio_client(self._folders.mktemp("server") / "data", **QUICK)
        await self._stack.enter_async_context(fresh)
        self._client = fresh
        return fresh


@pytest.fixture
async def server(servers: Servers) -> Client[Any]:
    return await servers.well()


@pytest.fixture
async def book(server: Client[Any]) -> AsyncIterator[Book]:
    """A notebook of its own for each case."""
    async with new_book(server) as made:
        yield made


class new_book:
    """A new notebook; leaving it ends its kernel."""

    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def __aenter__(self) -> Book:
        made = await call(self._client, "create_notebook", use=False)
        self._book = Book(client=self._client, name=made.structured_content["name"])
        return self._book

    async def __aexit__(self, *error: object) -> None:
        with suppress(Exception):  # the server's end is the next case's to find
            await self._book.ask("reset")


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


def waits_for(path: Path) -> str:
    """Code that goes on when the file is there."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}):\n    time.sleep(0.005)\n"


def indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())
