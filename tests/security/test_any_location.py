"""Kernels start and load their program wherever it is installed: here below a folder that only root may enter.

The server's environment and package are bind-mounted there, in a mount namespace that is the server's alone. Its
kernels have user ids of their own, for which that folder is closed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import quire

MOVE = 'mount --bind "$1" "$2" && mount --bind "$3" "$4" && exec "$2/bin/python" -P -m quire'
CELLS = {
    "sum": ("1 + 1", "2\n"),
    "package of the environment": ("import numpy; int(numpy.arange(4).sum())", "6\n"),
    "own process": ("!python -c 'import numpy; print(numpy.arange(5).sum())'", "10"),
    "display": ("from IPython.display import HTML; display(HTML('<b>shown</b>'))", "shown"),
    "help": ("len?", "Return the number of items"),
    "pip": ("%pip show numpy", "Name: numpy"),
    "shell command": ("!echo heard", "heard"),
    "figure": ("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", "image 0: png"),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A client of a server whose environment and package lie below a closed folder with spaces in its name."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root gives kernels user ids of their own, and unshare is needed")
    folder = tmp_path_factory.mktemp("location")
    closed = folder / "closed to others"
    closed.mkdir(mode=0o700)
    environment, program = closed / "a venv", closed / "src"
    for place in (environment, program):
        place.mkdir()
    package = Path(quire.__file__).parents[1]
    script = ["sh", "-c", MOVE, "sh", sys.prefix, str(environment), str(package), str(program)]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")},
        "PYTHONPATH": str(program),
        "QUIRE_STORE_DATA_DIR": str(folder / "data"),
        "QUIRE_KERNEL_PRELOAD": "",
        "QUIRE_SANDBOX_MODE": "require:user,mount,uid",
    }
    command = ["--mount", "--propagation", "private", *script]
    async with Client(StdioTransport("unshare", command, env=env, keep_alive=False)) as client:
        found = await answer(client, "__import__('sys').prefix")
        assert str(environment) in found, found
        yield client


async def answer(client: Client[Any], code: str, notebook: str = "main") -> str:
    result = await client.call_tool("execute", {"code": code, "notebook": notebook}, raise_on_error=False)
    return "\n".join(block.text for block in result.content if block.type == "text")


@pytest.mark.anyio
@pytest.mark.parametrize("cell", CELLS)
async def test_cell_runs_below_closed_folder(server: Client[Any], cell: str) -> None:
    code, expected = CELLS[cell]
    found = await answer(server, code)
    assert expected in found and "SUCCESS" in found, found


@pytest.mark.anyio
async def test_state_returns_with_tombstone_below_closed_folder(server: Client[Any]) -> None:
    await server.call_tool("create_notebook", {"name": "kept"})
    await answer(server, "import socket; number = 7; lost = socket.socket()", "kept")
    await server.call_tool("save_state", {"name": "one", "notebook": "kept"})
    await server.call_tool("reset", {"notebook": "kept"})
    await server.call_tool("restore_state", {"name": "one", "notebook": "kept"})
    assert (await answer(server, "number, type(lost).__name__", "kept")).startswith("(7, 'Tombstone')")


@pytest.mark.anyio
async def test_crash_is_survived_below_closed_folder(server: Client[Any]) -> None:
    await server.call_tool("create_notebook", {"name": "crashed"})
    await answer(server, "number = 8", "crashed")
    assert "CRASHED" in await answer(server, "import os; os._exit(3)", "crashed")
    assert (await answer(server, "number", "crashed")).startswith("8\n")


@pytest.mark.anyio
async def test_branch_runs_below_closed_folder(server: Client[Any]) -> None:
    await server.call_tool("create_notebook", {"name": "trunk"})
    await answer(server, "number = 9", "trunk")
    await server.call_tool("branch_notebook", {"notebook": "trunk", "name": "branch"})
    assert (await answer(server, "import numpy; number + int(numpy.ones(1)[0])", "branch")).startswith("10\n")


@pytest.mark.anyio
async def test_notebook_environment_loads_worker_below_closed_folder(server: Client[Any]) -> None:
    await server.call_tool("create_notebook", {"name": "own", "python": "venv"})
    code = "import sys\nfrom IPython.display import HTML\ndisplay(HTML('<b>shown</b>'))\nsys.prefix.endswith('/.venv')"
    found = await answer(server, code, "own")
    assert "shown" in found and "True\n" in found, found
    assert "Return the number of items" in await answer(server, "len?", "own")


@pytest.mark.anyio
async def test_copy_of_ipython_can_be_read_and_not_written(server: Client[Any]) -> None:
    await server.call_tool("create_notebook", {"name": "copy", "python": "venv"})
    code = "import IPython, pathlib\n'/libraries/ipython-' in IPython.__file__"
    assert (await answer(server, code, "copy")).startswith("True\n")
    for wrong in ("open(IPython.__file__, 'a')", "(pathlib.Path(IPython.__file__).parent / 'new.py').touch()"):
        found = await answer(server, wrong, "copy")
        assert "Read-only file system" in found or "Permission denied" in found, found
