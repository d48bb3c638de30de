"""What tests share: real servers over real transports, and a data directory of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from quire import compose
from quire.core.app import App
from quire.settings import load

# A shell's background job starts with SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

DEFAULTS: dict[str, str] = {}  # settings of every server that a module's tests start
DEADLINE = 60.0  # seconds anything is waited for


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and __import__("inspect").iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.anyio)


def missing(part: str, reason: str) -> None:
    """Skip because a part of the system is not there; on CI, which installs all parts, that is a failure."""
    if os.environ.get("TESTS_MAY_NOT_SKIP"):
        pytest.fail(f"{part} is missing and may not be: {reason}")
    pytest.skip(f"needs {part}: {reason}")


@pytest.fixture
def science() -> None:
    for name in ("numpy", "pandas", "matplotlib"):
        if __import__("importlib.util").util.find_spec(name) is None:
            missing("science", f"{name} is not installed")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def app(data_dir: Path) -> AsyncIterator[App]:
    async with compose.app(load({"data_dir": data_dir, "mounts": granted(data_dir)}, environ={})) as running:
        yield running


def granted(folder: Path) -> str:
    """Cells of most tests leave signs of themselves in the folders of this run of the tests, so they may write there;
    what code may not reach is for tests/security."""
    return f"{next((each for each in folder.parents if each.name.startswith('pytest-')), folder.parent)}:rw"


def server_environment(data_dir: Path, **settings: Any) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    settings = {"wasm_python": "plain", "preload": "", **settings}  # a preloaded numpy is half a second of each server
    given = {f"QUIRE_{name.upper()}": str(value) for name, value in settings.items()}
    given = {**DEFAULTS, "QUIRE_MOUNTS": granted(data_dir), **given}
    return {**clean, "QUIRE_DATA_DIR": str(data_dir), **given}


def stdio_client(
    data_dir: Path,
    *,
    mode: str = "auto",
    handler: Any = None,
    person: Any = None,
    command: tuple[str, ...] = ("-m", "quire"),
    **settings: Any,
) -> Client[Any]:
    """A client of a server process of its own, over stdio; `person` answers what a cell asks."""
    env = server_environment(data_dir, **settings)
    transport = StdioTransport(sys.executable, list(command), env=env, keep_alive=False)
    return Client(transport, mode=mode, message_handler=handler, elicitation_handler=person)


@contextlib.contextmanager
def http_server(data_dir: Path, **settings: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process over HTTP on a free port: its address, and the process."""
    env = server_environment(data_dir, **settings)
    command = [sys.executable, "-m", "quire", "serve", "--transport", "http", "--port", "0"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("Quire listens at "), first + process.stderr.read()
        yield first.split()[-1], process
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


@pytest.fixture(params=["stdio-2026", "stdio-2025", "http-2026", "http-2025"])
async def client(request: pytest.FixtureRequest, data_dir: Path) -> AsyncIterator[Client[Any]]:
    """A real client of a real server, over each transport in each protocol era."""
    transport, era = request.param.split("-")
    mode = "auto" if era == "2026" else "legacy"
    if transport == "stdio":
        async with stdio_client(data_dir, mode=mode) as connected:
            yield connected
    else:
        with http_server(data_dir) as (url, _):
            async with http_client(url, mode=mode) as connected:
                yield connected


@pytest.fixture
async def stdio(data_dir: Path) -> AsyncIterator[Client[Any]]:
    async with stdio_client(data_dir) as connected:
        yield connected


async def call(client: Client[Any], tool: str, /, **arguments: Any) -> Any:
    """Call a tool and get the whole result, failed or not."""
    return await client.call_tool(tool, arguments, raise_on_error=False)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def processes_of(root: int) -> list[int]:
    """Every living process below `root`."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def wait_until(true: Any, what: str) -> None:
    """Poll a condition inside a deadline."""
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, f"not within {DEADLINE:g} s: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def inspector() -> list[str]:
    """The command of the official MCP inspector, which nobody here wrote."""
    path = os.environ.get("MCP_INSPECTOR")
    node = shutil.which("node")
    if node is None or not path or not Path(path).exists():
        missing("the MCP inspector", "set MCP_INSPECTOR to its cli, as .ci/run does")
    return [str(node), str(path)]


BACKENDS = Path(__file__).parent / "backends"


def node_server(variable: str, *arguments: str) -> tuple[str, ...]:
    """The command of an MCP server from the npm registry, which nobody here wrote; .ci/run installs them."""
    path = os.environ.get(variable)
    node = shutil.which("node")
    if node is None or not path or not Path(path).exists():
        missing("an MCP server in node", f"set {variable} to its entry file, as .ci/run does")
    return (str(node), str(path), *arguments)


@contextlib.contextmanager
def listening(command: list[str], **environment: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A program that serves HTTP at PORT, which is passed on: its port, and the process."""
    port = free_port()
    env = {**os.environ, **environment, "PORT": str(port)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None, f"{command} ended with {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        wait_until(answers, f"{command} listens")
        yield port, process
    finally:
        process.kill()
        process.wait()
