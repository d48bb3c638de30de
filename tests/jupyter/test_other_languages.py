"""A kernel that is not Python: started by its kernelspec, run, interrupted and restarted as any other."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.support.jupyter.quires import TOOLSETS, kernels, quire, refused, said, saved_when
from tests.support.jupyter.servers import JupyterServer, jupyter
from tests.support.servers import call, text
from tests.support.waiting import wait_until

BASH = ("bash", "bash", sys.executable, "-m", "bash_kernel", "-f")


@pytest.fixture(params=["standalone", "extension"])
async def reached(
    request: pytest.FixtureRequest, tmp_path: Path, collaborating: JupyterServer
) -> AsyncIterator[tuple[JupyterServer, Client[Any]]]:
    """A server with a kernelspec of bash, and an agent's client."""
    if request.param == "standalone":
        collaborating.kernelspec(*BASH)
        async with quire(tmp_path, collaborating) as client:
            yield collaborating, client
        return
    environment = {"QUIRE_DATA_DIR": str(tmp_path / "quire"), "QUIRE_SPARE_KERNELS": "0", "QUIRE_PRELOAD": ""}
    environment["QUIRE_TOOLSETS"] = TOOLSETS
    with jupyter(tmp_path / "jupyter", quire=True, environment=environment) as server:
        server.kernelspec(*BASH)
        headers = {"Authorization": f"token {server.token}"}
        async with Client(StreamableHttpTransport(f"{server.url}mcp", headers=headers)) as client:
            yield server, client


async def started(client: Client[Any], server: JupyterServer, *sources: str) -> tuple[str, str]:
    """The path of a notebook that is taken up in a kernel of bash, and that kernel."""
    path = server.notebook(*sources)
    taken = await said(client, "use_notebook", notebook_name="book", notebook_path=path, kernel_id="bash")
    return path, taken.partition("Connected to kernel '")[2].partition("'")[0]


async def test_it_is_started_by_its_kernelspec_and_its_cells_run(reached: tuple[JupyterServer, Client[Any]]) -> None:
    server, client = reached
    path, kernel = await started(client, server, "x=42", "echo $((x + 1))")
    assert f"{kernel}\tbash\tbash\tbash" in await said(client, "list_kernels")
    await said(client, "execute_cell", cell_index=0)
    assert (await said(client, "execute_cell", cell_index=1)).startswith("43\n")
    cells = saved_when(server, path, lambda cells: cells[1]["execution_count"])
    assert "".join(cells[1]["outputs"][0]["text"]).strip() == "43"
    await said(client, "unuse_notebook", notebook_name="book")
    wait_until(lambda: kernel not in kernels(server), "the kernel that was started ended")


async def test_a_command_that_fails_is_an_error_with_what_it_printed_before(
    reached: tuple[JupyterServer, Client[Any]],
) -> None:
    server, client = reached
    await started(client, server, "echo before\n(exit 3)", "echo after")
    failed = await refused(client, "execute_cell", cell_index=0)
    assert failed == "before\nError: 3"
    assert (await said(client, "execute_cell", cell_index=1)).startswith("after")


async def test_it_is_interrupted_with_its_variables_kept_and_restarted_without_them(
    reached: tuple[JupyterServer, Client[Any]],
) -> None:
    server, client = reached
    await started(client, server, "x=42")
    await said(client, "execute_cell", cell_index=0)
    answers: list[Any] = []
    # in a process of its own that says it: bash ignores an interrupt that comes while it makes one
    code = "bash -c 'echo begun; sleep 600'"

    async def run() -> None:
        answers.append(await call(client, "execute", code=code, timeout=120, notebook="book"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(60):
            while "begun" not in text(await call(client, "get_cell", cell_id_or_number=1, notebook="book")):
                await anyio.sleep(0.05)
        await said(client, "interrupt", notebook="book")
    assert answers[0].structured_content["state"] == "INTERRUPTED", text(answers[0])
    assert "did not stop" not in text(answers[0])
    assert (await said(client, "execute_code", code="echo [$x]")).startswith("[42]")
    await said(client, "restart_notebook", notebook_name="book")
    assert (await said(client, "execute_code", code="echo [$x]")).startswith("[]")


async def test_what_it_holds_is_not_guessed_at(reached: tuple[JupyterServer, Client[Any]]) -> None:
    server, client = reached
    await started(client, server, "x=42")
    await said(client, "execute_cell", cell_index=0)
    answer = await call(client, "state", notebook="book")
    assert "language is bash" in text(answer) and "Python only" in text(answer), text(answer)


async def test_a_kernelspec_whose_program_does_not_start_is_said(reached: tuple[JupyterServer, Client[Any]]) -> None:
    server, client = reached
    server.kernelspec("broken", "nothing", "false")
    await said(client, "use_notebook", notebook_name="book", notebook_path=server.notebook("1"), kernel_id="broken")
    failed = await refused(client, "execute_cell", cell_index=0)
    assert "kernelspec 'broken'" in failed and "Jupyter server's log" in failed, failed
