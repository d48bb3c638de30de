"""Notebooks of a running server, used through its MCP tools, and code for their cells."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp import Client

from tests.support.processes import here, parent
from tests.support.servers import (
    call,
    text,
)
from tests.support.waiting import DEADLINE, until


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
        result = await self.run(code, timeout=DEADLINE)
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
        """The server's process: the live process is its supervisor's child, that the zygote's, that the server's."""
        return parent(await self.zygote())

    async def zygote(self) -> int:
        return parent(await self.supervisor())

    async def supervisor(self) -> int:
        return await self.process("os.getppid()")

    async def process(self, number: str) -> int:
        """The process that code calls so, by the machine's own number."""
        found = here(*await self.value(f"import os\n[{number}, os.readlink('/proc/self/ns/pid')]"))
        assert found, f"there is no process {number}"
        return found

    async def checkpoints(self) -> list[dict[str, Any]]:
        """Those there are, oldest first."""
        listed = await self.ask("list_checkpoints")
        assert not listed.is_error, listed
        found: list[dict[str, Any]] = listed.structured_content["checkpoints"]
        return found

    async def protected(self) -> None:
        """Wait until a checkpoint is taken of what the last cell left."""

        async def there() -> bool:
            books = (await call(self.client, "list_notebooks")).structured_content["notebooks"]
            mine = next(each for each in books if each["name"] == self.name or (self.name is None and each["current"]))
            return not mine["protection"].startswith("unprotected")

        await until(there, "there is a checkpoint of the newest state")


class new_book:
    """A new notebook, with what create_notebook takes; leaving it ends its kernel. `use` makes it the current one."""

    def __init__(self, client: Client[Any], *, use: bool = False, **policy: Any) -> None:
        self._client = client
        self._use = use
        self._policy = policy

    async def __aenter__(self) -> Book:
        made = await call(self._client, "create_notebook", use=self._use, **self._policy)
        assert not made.is_error, text(made)
        self._book = Book(client=self._client, name=made.structured_content["name"])
        return self._book

    async def __aexit__(self, *error: object) -> None:
        with suppress(Exception):  # the server's end is the next case's to find
            await self._book.ask("reset")


async def made(client: Any, name: str, **policy: Any) -> Book:
    created = await call(client, "create_notebook", name=name, **policy)
    assert not created.is_error, text(created)
    return Book(client=client, name=name)


async def good(book: Book, code: str, timeout: float = 30) -> Any:
    result = await book.run(code, timeout)
    assert not result.is_error, text(result)
    return result


def notice(result: Any) -> str:
    assert not result.is_error, text(result)
    return str(result.structured_content.get("notice", ""))


async def info(book: Book) -> dict[str, Any]:
    listed = (await call(book.client, "list_notebooks")).structured_content["notebooks"]
    found: dict[str, Any] = next(each for each in listed if each["name"] == (book.name or "main"))
    return found


async def kernel(book: Book) -> str:
    return str((await info(book))["kernel"])


async def asleep(book: Book) -> None:
    async def is_so() -> bool:
        return await kernel(book) == "hibernated"

    await until(is_so, "the kernel sleeps on disk")


def waits_for(path: Path) -> str:
    """Code that goes on when the file is there."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}):\n    time.sleep(0.005)\n"


def indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())
