"""What the fault tests share: a server that outlives each hostile cell, and ways to wait for a fact."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.conftest import DEADLINE, DEFAULTS, alive, call, stdio_client, text, wait_until

QUICK: dict[str, Any] = {"grace": 0.5, "preload": ""}
"""Settings of a server that starts at once and kills soon."""

IN_MEMORY: dict[str, Any] = {"snapshot_interval": 0, "auto_save": 0, "auto_restore": False}
"""Settings of a server whose namespaces are in its processes only: the disk does not hide what a crash costs."""

ROOMY = """
from quire.cli import main
from quire.runtimes.python import budget

budget.machine = lambda: budget.Machine(total=2**37, available=2**37)
main()
"""
"""A server that believes its machine has plenty of memory, whatever else runs there: no checkpoint goes for that."""


def roomy_client(data_dir: Path, **settings: Any) -> Client[Any]:
    """A client of such a server, with settings that make it quick."""
    return stdio_client(data_dir, command=("-c", ROOMY), **QUICK, **settings)


# these look at the machine's processes by the numbers cells tell, or do to a keeper what a cell in a namespace of its
# own cannot; of what they promise tests/security tries the nearest behind walls, not all
BY_NUMBER = {"test_capabilities", "test_hibernation", "test_keeper", "test_kills", "test_memory", "test_snapshots"}


@pytest.fixture(autouse=True, scope="module")
def walls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether servers of this module's tests put kernels behind walls."""
    if request.module.__name__.rpartition(".")[2] in BY_NUMBER:
        DEFAULTS["QUIRE_SANDBOX"] = "off"
    yield
    DEFAULTS.clear()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def here(number: int, namespace: str) -> int:
    """The machine's own number of a process that has this one in its namespace; 0 where there is none."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            names = place.joinpath("status").read_text().partition("NSpid:")[2].split("\n", 1)[0].split()
            if names and int(names[-1]) == number and os.readlink(place / "ns" / "pid") == namespace:
                return int(place.name)
    return 0


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
        """The server's process: the live process is its keeper's child, that the zygote's, that the server's."""
        return parent(await self.zygote())

    async def zygote(self) -> int:
        return parent(await self.keeper())

    async def keeper(self) -> int:
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
        fresh = roomy_client(self._folders.mktemp("server") / "data", **IN_MEMORY)
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
    """A new notebook, with what create_notebook takes; leaving it ends its kernel."""

    def __init__(self, client: Client[Any], **policy: Any) -> None:
        self._client = client
        self._policy = policy

    async def __aenter__(self) -> Book:
        made = await call(self._client, "create_notebook", use=False, **self._policy)
        assert not made.is_error, text(made)
        self._book = Book(client=self._client, name=made.structured_content["name"])
        return self._book

    async def __aexit__(self, *error: object) -> None:
        with suppress(Exception):  # the server's end is the next case's to find
            await self._book.ask("reset")


AS_BEFORE = "Variables are as they were before this cell."

_EARLIER = """
import threading
x = 41
squares = (n * n for n in range(10))
next(squares), next(squares)
lock = threading.Lock()
lock.acquire()
file = open('earlier.txt', 'w+')
file.write('first line')
file.flush()
numbers = [1]
"""

_OWN = """
import os, subprocess, sys, time
own = 1
numbers.append(2)
next(squares)
lock.release()
file.write(', lost')
file.flush()
os.chdir('/')
child = subprocess.Popen(['sleep', '1000'], start_new_session=True)
print('before', child.pid, os.readlink('/proc/self/ns/pid'))
"""

_LATER = """
import os
file.write(', second line')
file.flush()
file.seek(0)
x, next(squares), lock.locked(), file.read(), numbers, 'own' in globals(), os.getcwd() == os.path.dirname(file_path)
"""


async def have_state(book: Book) -> None:
    """A cell whose variables no pickle could keep: a generator, a lock, an open file."""
    await book.value(_EARLIER + "import os\nfile_path = os.path.abspath(file.name)")


async def attack(book: Book, code: str, timeout: float = 30) -> Any:
    """Run code that first changes all of that state, starts a process in a session of its own, and prints."""
    return await book.run(_OWN + code, timeout=timeout)


async def is_undone(book: Book, result: Any, state: str, *words: str) -> None:
    """The cell ended so and says why; it printed what it printed, and left nothing else behind."""
    found = result.structured_content
    assert (result.is_error, found["state"]) == (True, state), text(result)
    assert [word for word in (*words, AS_BEFORE) if word not in found["error_message"]] == [], found["error_message"]
    await nothing_runs_of(result)
    await state_is_as_before(book)


async def nothing_runs_of(result: Any) -> None:
    before, pid, namespace = result.structured_content["stdout"].split()
    assert before == "before"
    wait_until(lambda: not alive(here(int(pid), namespace)), "what the cell started is gone")


async def state_is_as_before(book: Book) -> None:
    after = await book.run(_LATER)
    assert not after.is_error, text(after)
    assert after.structured_content["return_value"] == [41, 4, True, "first line, second line", [1], False, True]
    assert "notice" not in after.structured_content


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


def parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0  # it is gone


def indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())
