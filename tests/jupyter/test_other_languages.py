"""Kernels in other languages than Python: started by kernelspec, run, interrupted and restarted."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.support.jupyter.quires import TOOLSETS, kernels, quire, refused, release_notebooks, said, saved_when
from tests.support.jupyter.servers import JupyterServer, jupyter
from tests.support.servers import call, text, variables
from tests.support.waiting import DEADLINE, wait_until

BASH = ("bash", "bash", sys.executable, "-m", "bash_kernel", "-f")


@pytest.fixture(scope="module")
def bash_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """A Jupyter server with the Quire extension and a kernelspec of bash. It notices kernels that die at once."""
    folder = tmp_path_factory.mktemp("bash")
    settings = {"data_dir": folder / "quire", "toolsets": TOOLSETS, "preload": "", "spare_kernels": "0"}
    environment = variables(settings)
    options = ("--KernelRestarter.time_to_dead=0.2",)
    with jupyter(folder / "jupyter", quire=True, environment=environment, options=options) as server:
        server.kernelspec(*BASH)
        yield server


@pytest.fixture(scope="module", params=["standalone", "extension"])
async def agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bash_server: JupyterServer
) -> AsyncIterator[Client[Any]]:
    """A client of a Quire process of its own, or of the extension in the server."""
    headers = {"Authorization": f"token {bash_server.token}"}
    inside = Client(StreamableHttpTransport(f"{bash_server.url}mcp", headers=headers))
    outside = quire(tmp_path_factory.mktemp("standalone"), bash_server)
    async with outside if request.param == "standalone" else inside as client:
        yield client


@pytest.fixture
async def reached(agent: Client[Any], bash_server: JupyterServer) -> AsyncIterator[tuple[JupyterServer, Client[Any]]]:
    yield bash_server, agent
    await release_notebooks(agent)


async def started(client: Client[Any], server: JupyterServer, *sources: str) -> tuple[str, str]:
    """The path of a notebook that is taken up in a kernel of bash, and that kernel."""
    path = server.notebook(*sources)
    taken = await said(client, "use_notebook", notebook_name="book", notebook_path=path, kernel_id="bash")
    return path, taken.partition("Connected to kernel '")[2].partition("'")[0]


async def test_kernel_is_started_by_its_kernelspec_and_runs_cells(reached: tuple[JupyterServer, Client[Any]]) -> None:
    server, client = reached
    path, kernel = await started(client, server, "x=42", "echo $((x + 1))")
    assert f"{kernel}\tbash\tbash\tbash" in await said(client, "list_kernels")
    await said(client, "execute_cell", cell_index=0)
    assert (await said(client, "execute_cell", cell_index=1)).startswith("43\n")
    cells = saved_when(server, path, lambda cells: cells[1]["execution_count"])
    assert "".join(cells[1]["outputs"][0]["text"]).strip() == "43"
    await said(client, "unuse_notebook", notebook_name="book")
    wait_until(lambda: kernel not in kernels(server), "the kernel that was started ended")


async def test_created_notebook_names_the_kernelspec_it_runs_in(
    reached: tuple[JupyterServer, Client[Any]],
) -> None:
    server, client = reached
    first, second = (f"{uuid.uuid4().hex}.ipynb" for _ in range(2))
    taken = await said(
        client, "use_notebook", notebook_name="book", notebook_path=first, mode="create", kernel_id="bash"
    )
    kernel = taken.partition("Connected to kernel '")[2].partition("'")[0]
    await said(client, "use_notebook", notebook_name="two", notebook_path=second, mode="create", kernel_id=kernel)
    for path in (first, second):
        assert server.saved(path)["metadata"]["kernelspec"]["name"] == "bash"
    await said(client, "unuse_notebook", notebook_name="book")
    await said(client, "use_notebook", notebook_name="book", notebook_path=first)  # as its page would open it
    inserted = {"cell_index": -1, "cell_source": "echo $((6 * 7))", "notebook_name": "book"}
    assert (await said(client, "insert_execute_code_cell", **inserted)).startswith("42\n")


async def test_failed_command_is_an_error_with_earlier_output(
    reached: tuple[JupyterServer, Client[Any]],
) -> None:
    server, client = reached
    await started(client, server, "echo before\n(exit 3)", "echo after")
    failed = await refused(client, "execute_cell", cell_index=0)
    assert failed == "before\nError: 3"
    assert (await said(client, "execute_cell", cell_index=1)).startswith("after")


async def test_interrupt_keeps_variables_and_restart_drops_them(
    reached: tuple[JupyterServer, Client[Any]],
) -> None:
    server, client = reached
    await started(client, server, "x=42")
    await said(client, "execute_cell", cell_index=0)
    answers: list[Any] = []
    # bash ignores an interrupt that comes while it forks: after "begun" nothing is forked any more
    code = "bash -c 'echo begun; exec sleep 600'"

    async def run() -> None:
        answers.append(await call(client, "execute", code=code, timeout=120, notebook="book"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(DEADLINE):
            while "begun" not in text(await call(client, "get_cell", cell_id_or_number=1, notebook="book")):
                await anyio.sleep(0.05)
        await said(client, "interrupt", notebook="book")
    assert answers[0].structured_content["state"] == "INTERRUPTED", text(answers[0])
    assert "did not stop" not in text(answers[0])
    assert (await said(client, "execute_code", code="echo [$x]")).startswith("[42]")
    await said(client, "restart_notebook", notebook_name="book")
    assert (await said(client, "execute_code", code="echo [$x]")).startswith("[]")


async def test_state_says_that_only_python_can_be_inspected(reached: tuple[JupyterServer, Client[Any]]) -> None:
    server, client = reached
    await started(client, server, "x=42")
    await said(client, "execute_cell", cell_index=0)
    answer = await call(client, "state", notebook="book")
    assert "language is bash" in text(answer) and "Python only" in text(answer), text(answer)


async def test_kernelspec_whose_program_does_not_start_is_named(reached: tuple[JupyterServer, Client[Any]]) -> None:
    server, client = reached
    server.kernelspec("broken", "nothing", "false")
    await said(client, "use_notebook", notebook_name="book", notebook_path=server.notebook("1"), kernel_id="broken")
    failed = await refused(client, "execute_cell", cell_index=0)
    assert "kernelspec 'broken'" in failed and "Jupyter server's log" in failed, failed
