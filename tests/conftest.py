"""Fixtures of all tests: a data directory, an app, and clients of real servers. Helpers are in tests/support."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
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
from tests.support.servers import granted, http_client, http_server, stdio_client  # noqa: E402

# A shell's background job starts with SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and __import__("inspect").iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.anyio)


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
    async with compose.app(load({"data_dir": data_dir, "mounts": granted(data_dir)}, environ={})) as running:
        yield running


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
