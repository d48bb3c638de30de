"""Quire servers as processes of their own, over stdio and HTTP, and clients of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from quire import compose
from quire.settings import load
from quire.settings.names import SETTINGS, VARIABLES
from tests.support import preloaded
from tests.support.processes import alive, left_over, servers_of
from tests.support.waiting import DEADLINE, wait_until


def granted(folder: Path) -> str:
    """Cells of most tests leave signs of themselves in the folders of this run of the tests, so they may write there;
    what code may not reach is for tests/security."""
    return f"{next((each for each in folder.parents if each.name.startswith('pytest-')), folder.parent)}:rw"


_BY_NAME = {name: setting for setting in SETTINGS for name in (setting.old, setting.keyword)}


def keywords(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings for `load` and `quire.open`, which tests may name as version 0.1 did: without a section."""
    return {_BY_NAME[name].keyword: value for name, value in settings.items()}


def variables(settings: dict[str, Any]) -> dict[str, str]:
    """The same as environment variables."""
    return {VARIABLES.new(_BY_NAME[name]): str(value) for name, value in settings.items()}


def server_environment(data_dir: Path, **settings: Any) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    settings = {"wasm_python": "plain", "preload": "", **settings}  # a preloaded numpy is half a second of each server
    return {**clean, **variables({"mounts": granted(data_dir), "data_dir": data_dir, **settings})}


def stdio_client(
    data_dir: Path,
    *,
    mode: str = "auto",
    handler: Any = None,
    person: Any = None,
    command: tuple[str, ...] = ("-m", "quire"),
    environment: dict[str, str] | None = None,
    **settings: Any,
) -> Client[Any]:
    """A client of a server process of its own, over stdio; `person` answers what a cell asks."""
    env = {**server_environment(data_dir, **settings), **(environment or {})}
    program, *arguments = preloaded.command(*command)
    transport = StdioTransport(program, arguments, env=env, keep_alive=False)
    return Client(transport, mode=mode, message_handler=handler, elicitation_handler=person)


@contextlib.contextmanager
def http_server(
    data_dir: Path,
    *,
    command: tuple[str, ...] = ("serve", "--server-transport", "http", "--server-port", "0"),
    environment: dict[str, str] | None = None,
    own_child: bool = False,
    **settings: Any,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process over HTTP on a free port: its address, and the process. With `own_child` that is the server
    itself, for a test that looks at it or at what it starts; else it only takes signals and ends as the server does."""
    env = {**server_environment(data_dir, **settings), **(environment or {})}
    program = [sys.executable, "-m", "quire", *command] if own_child else preloaded.quire(*command)
    process = subprocess.Popen(program, env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while not said[-1].startswith("Quire listens at "):
            assert said[-1], "".join(said)
            said.append(process.stderr.readline())
        yield said[-1].split()[-1], process
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            os.set_blocking(process.stderr.fileno(), False)
            with contextlib.suppress(OSError):  # for the report of a test that fails
                print(os.read(process.stderr.fileno(), 1 << 16).decode(errors="replace"), file=sys.stderr)
            process.stderr.close()


def http_client(url: str, *, mode: str = "auto", handler: Any = None, person: Any = None) -> Client[Any]:
    return Client(StreamableHttpTransport(url), mode=mode, message_handler=handler, elicitation_handler=person)


async def call(client: Client[Any], tool: str, /, **arguments: Any) -> Any:
    """Call a tool and get the whole result, failed or not."""
    return await client.call_tool(tool, arguments, raise_on_error=False)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


QUICK: dict[str, Any] = {"grace": 0.5, "preload": ""}
"""Settings of a server that starts at once and kills soon."""


NO_SANDBOX: dict[str, Any] = {"sandbox": "off"}
"""Settings of a server without a sandbox, for tests that look at the machine's processes by the pids that cells report,
or that do to a supervisor what a cell in a pid namespace of its own cannot. tests/security tries the nearest attacks
with the sandbox on."""

IN_MEMORY: dict[str, Any] = {"snapshot_interval": 0, "auto_save": 0, "auto_restore": False}
"""Settings of a server whose namespaces are in its processes only: the disk does not hide what a crash costs."""


ROOMY = """
from quire.cli import main
from quire.runtimes.python import checkpoint_budget

checkpoint_budget.machine_memory = lambda: checkpoint_budget.MachineMemory(total=2**37, available=2**37)
main()
"""
"""A server that believes its machine has plenty of memory, whatever else runs there: no checkpoint goes for that."""


def roomy_client(data_dir: Path, **settings: Any) -> Client[Any]:
    """A client of such a server, with settings that make it quick."""
    return stdio_client(data_dir, command=("-c", ROOMY), **QUICK, **settings)


class SharedServer:
    """One server over stdio for several tests. A test that ends it costs the next one a new server."""

    def __init__(
        self,
        folders: pytest.TempPathFactory,
        stack: AsyncExitStack,
        settings: dict[str, Any],
        start: Callable[..., Client[Any]] = stdio_client,
    ) -> None:
        self._folders = folders
        self._stack = stack
        self._settings = settings
        self._start = start
        self._client: Client[Any] | None = None
        self.data_dir: Path | None = None

    async def client(self) -> Client[Any]:
        if self._client is not None:
            with suppress(Exception):
                await call(self._client, "list_notebooks")
                return self._client
        self.data_dir = self._folders.mktemp("server") / "data"
        self._client = self._start(self.data_dir, **self._settings)
        return await self._stack.enter_async_context(self._client)


class SharedServers:
    """The servers over stdio of a module, one for each combination of settings that its tests ask for."""

    def __init__(self, folders: pytest.TempPathFactory, stack: AsyncExitStack) -> None:
        self._folders = folders
        self._stack = stack
        self._servers: dict[str, SharedServer] = {}

    def server(self, **settings: Any) -> SharedServer:
        key = repr(sorted(settings.items()))
        if key not in self._servers:
            self._servers[key] = SharedServer(self._folders, self._stack, settings)
        return self._servers[key]

    async def client(self, **settings: Any) -> Client[Any]:
        return await self.server(**settings).client()


@contextlib.asynccontextmanager
async def in_process_client(data_dir: Path, **given: Any) -> AsyncIterator[Client[Any]]:
    """A client of a server in this process, for tests of what a server offers with these settings."""
    settings = load({"store_data_dir": data_dir, "kernel_preload": "", **keywords(given)}, environ={})
    async with compose.app(settings) as app, Client(compose.mcp(app, settings)) as client:
        yield client


SLEEPY: dict[str, Any] = {"snapshot_interval": 0.05, "hibernate_after": 0.3, "spare_kernels": 0}


@contextlib.asynccontextmanager
async def cut_off(client: Client[Any]) -> AsyncIterator[Client[Any]]:
    """A connection whose other end goes away: that may be reported when it is closed, and is not the matter."""
    await client.__aenter__()
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            await client.__aexit__(None, None, None)


def end(data_dir: Path, how: signal.Signals) -> None:
    """Send a signal to the server of this data directory, if it runs, and wait until it and all it started are gone."""
    family = left_over(data_dir)
    for server in servers_of(data_dir):
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, how)
    wait_until(lambda: not any(map(alive, family)), "the server is gone, with all it started")
