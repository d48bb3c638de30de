"""A Jupyter server that cannot write: no change is lost, and each unsaved one is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.support.jupyter.places import REPOSITORY
from tests.support.jupyter.quires import TOOLSETS, quire, refused, said, saved_when
from tests.support.jupyter.servers import JupyterServer, jupyter
from tests.support.servers import call, text, variables
from tests.support.waiting import DEADLINE

REFUSING = "--ServerApp.contents_manager_class=tests.support.jupyter.refusing.Refusing"


@dataclass(frozen=True, kw_only=True)
class Way:
    server: JupyterServer
    client: Client[Any]

    @property
    def full(self) -> Path:
        """While this is there, nothing is written."""
        return self.server.folder / "full"


@pytest.fixture(scope="module")
def full_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """A Jupyter server with the Quire extension, whose disk can be full."""
    folder = tmp_path_factory.mktemp("saves")
    settings = {"data_dir": folder / "quire", "toolsets": TOOLSETS, "preload": "", "spare_kernels": "0"}
    environment = variables(settings)
    how: dict[str, Any] = {"environment": {"PYTHONPATH": str(REPOSITORY), **environment}, "options": (REFUSING,)}
    with jupyter(folder / "jupyter", quire=True, collaboration=request.param, **how) as server:
        yield server


@pytest.fixture(params=["standalone", "extension"])
async def way(request: pytest.FixtureRequest, full_server: JupyterServer, tmp_path: Path) -> AsyncIterator[Way]:
    """A client of a Quire process of its own, or of the extension in the server."""
    headers = {"Authorization": f"token {full_server.token}"}
    inside = Client(StreamableHttpTransport(f"{full_server.url}mcp", headers=headers))
    async with quire(tmp_path, full_server) if request.param == "standalone" else inside as client:
        yield Way(server=full_server, client=client)


async def until(client: Client[Any], tool: str, *, warned: bool, **arguments: Any) -> Any:
    """The first answer that says, or does not say, that something is not saved."""
    with anyio.fail_after(DEADLINE):
        while ("not saved" in text(answer := await call(client, tool, **arguments))) is not warned:
            await anyio.sleep(0.1)
    return answer


@pytest.mark.parametrize("full_server", [True], ids=["collaborating"], indirect=True)
async def test_failed_save_is_reported_until_a_save_succeeds(way: Way) -> None:
    client, server = way.client, way.server
    path = server.notebook("a = 1")
    await said(client, "use_notebook", notebook_name="book", notebook_path=path)
    way.full.touch()
    assert "+a = 2" in await said(client, "overwrite_cell_source", cell_index=0, cell_source="a = 2")
    await until(client, "read_cell", cell_index=0, warned=True)
    ran = await call(client, "execute", code="print('ran')", notebook="book")
    assert not ran.is_error and "ran\n" in ran.structured_content["stdout"], text(ran)
    assert f"did not write '{path}'" in ran.structured_content["notice"]
    kept = await refused(client, "unuse_notebook", notebook_name="book")
    assert "did not write" in kept and "the disk may be full" in kept
    assert "a = 1" in "".join(server.saved(path)["cells"][0]["source"])
    way.full.unlink()
    await until(client, "read_cell", cell_index=0, warned=False)
    cells = saved_when(server, path, lambda cells: len(cells) == 2 and cells[1]["outputs"])
    assert "".join(cells[0]["source"]) == "a = 2"
    await said(client, "unuse_notebook", notebook_name="book")


@pytest.mark.parametrize("full_server", [False], ids=["plain"], indirect=True)
async def test_unwritten_edits_and_runs_are_errors_without_collaboration(way: Way) -> None:
    client, server = way.client, way.server
    path = server.notebook("print('ran')")
    await said(client, "use_notebook", notebook_name="book", notebook_path=path)
    way.full.touch()
    edited = await refused(client, "overwrite_cell_source", cell_index=0, cell_source="a = 2")
    assert "No space left on device" in edited and path in edited
    assert "No space left on device" in await refused(client, "execute_cell", cell_index=0)
    way.full.unlink()
    assert (await said(client, "execute_cell", cell_index=0)).startswith("ran\n")
    assert server.saved(path)["cells"][0]["execution_count"]
