"""Fixtures of all tests: a data directory, an app, and clients of real servers. Helpers are in tests/support."""

from __future__ import annotations

import gc
import inspect
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from quire import compose
from quire.core.app import App
from quire.settings import load

SUPPORT = Path(__file__).parent / "support"
pytest.register_assert_rewrite(*(f"tests.support.{path.stem}" for path in SUPPORT.iterdir()))  # before the first import

from tests.support.disks import require_user_namespaces  # noqa: E402
from tests.support.external_programs import missing  # noqa: E402
from tests.support.notebooks import Book, new_book  # noqa: E402
from tests.support.servers import SharedServer, SharedServers, granted, stdio_client  # noqa: E402

# A shell's background job starts with SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak",
        choices=("none", "sample", "all"),
        default="none",
        help="Which tests marked `soak` to run: none, only a fixed sample of them, or only them, all",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.anyio)
    wanted = config.getoption("--soak")
    config.hook.pytest_deselected(items=[item for item in items if not _is_wanted(item, wanted)])
    items[:] = [item for item in items if _is_wanted(item, wanted)]


def _is_wanted(item: pytest.Item, wanted: str) -> bool:
    """A test is in the soak with `@pytest.mark.soak`, and in its sample with `@pytest.mark.soak(sample=True)`."""
    markers = list(item.iter_markers("soak"))
    if wanted == "none" or not markers:
        return wanted == "none" and not markers
    return wanted == "all" or any(marker.kwargs.get("sample") for marker in markers)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: thousands of tests stay, so it would look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """One event loop for all tests of a worker, so that servers can be shared."""
    return "asyncio"


@pytest.fixture
def science() -> None:
    for name in ("numpy", "pandas", "matplotlib"):
        if __import__("importlib.util").util.find_spec(name) is None:
            missing("science", f"{name} is not installed")


@pytest.fixture
def namespaces() -> None:
    """The machine allows a mount namespace, in which a test has a small disk."""
    require_user_namespaces()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def app(data_dir: Path) -> AsyncIterator[App]:
    async with compose.app(
        load({"store_data_dir": data_dir, "sandbox_mounts": granted(data_dir)}, environ={})
    ) as running:
        yield running


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    """Settings of the module's shared server. A module that needs others overrides this fixture."""
    return {}


@pytest.fixture(scope="module")
async def shared_server(
    tmp_path_factory: pytest.TempPathFactory, server_settings: dict[str, Any]
) -> AsyncIterator[SharedServer]:
    """One server over stdio for the tests of a module."""
    async with AsyncExitStack() as stack:
        yield SharedServer(tmp_path_factory, stack, server_settings)


@pytest.fixture(scope="module")
async def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedServers]:
    """Servers over stdio for the tests of a module that need other settings, one per combination of settings."""
    async with AsyncExitStack() as stack:
        yield SharedServers(tmp_path_factory, stack)


@pytest.fixture
async def book(shared_server: SharedServer) -> AsyncIterator[Book]:
    """A new notebook of the module's server, which is its client's current one. Its kernel ends with the test."""
    async with new_book(await shared_server.client(), use=True) as made:
        yield made


@pytest.fixture
def client(book: Book) -> Client[Any]:
    """A client of the module's server. Its current notebook is new, and its kernel ends with the test."""
    return book.client


@pytest.fixture
async def stdio(data_dir: Path) -> AsyncIterator[Client[Any]]:
    """A client of a server of its own, for a test that ends it, changes it as a whole or looks at its data."""
    async with stdio_client(data_dir) as connected:
        yield connected
