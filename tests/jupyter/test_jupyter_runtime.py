"""Kernels of a Jupyter server: who owns them, how they end, and the errors when something is missing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from quire.clients.jupyter.client import remote_client
from tests.support.jupyter.quires import IMPATIENT, kernel_for, kernels, quire, refused, said
from tests.support.jupyter.servers import JupyterServer, free_port, jupyter
from tests.support.notebooks import waits_for
from tests.support.servers import call, http_client, http_server, text
from tests.support.waiting import DEADLINE, appears, wait_until


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {"command": ("-c", IMPATIENT)}


async def use(client: Client[Any], path: str) -> None:
    await said(client, "use_notebook", notebook_name="book", notebook_path=path)


def own(server: JupyterServer, path: str) -> str:
    """The kernel of the document's session."""
    found = [each for each in server.call("GET", "api/sessions") if each["path"] == path]
    return str(found[0]["kernel"]["id"]) if found else ""


async def test_dead_kernel_ends_the_run_and_the_next_run_gets_a_new_one(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = collaborating.notebook("x = 1", "import os\nos.kill(os.getpid(), 9)")
    await use(client, path)
    await said(client, "execute_cell", cell_index=0)
    died = await refused(client, "execute_cell", cell_index=1, timeout=600)
    assert "What it had in memory is gone" in died
    assert "Run again: cell 0" in died
    assert "NameError" in await refused(client, "execute_code", code="x")


async def test_sigterm_ends_kernels_that_quire_started_and_no_others(
    tmp_path: Path, collaborating: JupyterServer
) -> None:
    theirs, mine = collaborating.notebook("'theirs'"), collaborating.notebook("'mine'")
    kernel = kernel_for(collaborating, theirs)
    settings = {"jupyter_url": collaborating.url, "jupyter_token": collaborating.token, "toolsets": "jupyter"}
    with http_server(tmp_path / "quire", **settings) as (url, process):
        async with http_client(url) as client:
            await said(client, "use_notebook", notebook_name="t", notebook_path=theirs)
            await said(client, "execute_cell", cell_index=0, notebook_name="t")
            await said(client, "use_notebook", notebook_name="m", notebook_path=mine)
            await said(client, "execute_cell", cell_index=0, notebook_name="m")
        started = own(collaborating, mine)
        assert {kernel, started} <= kernels(collaborating)
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
    wait_until(lambda: started not in kernels(collaborating), "the kernel that Quire started is gone")
    assert kernel in kernels(collaborating)


async def test_unstoppable_code_in_a_persons_kernel_ends_only_by_restart(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"
    path = collaborating.notebook(stubborn, "'after'")
    kernel = kernel_for(collaborating, path)
    process = collaborating.kernel_pid(kernel)
    await use(client, path)
    late = await refused(client, "execute_cell", cell_index=0, timeout=2)
    assert "still runs: others use its kernel" in late and "restart_notebook" in late
    assert collaborating.kernel_pid(kernel) == process
    assert "Nothing ran" in await refused(client, "execute_cell", cell_index=1)
    await said(client, "restart_notebook", notebook_name="book")
    assert (await said(client, "execute_cell", cell_index=1)).startswith("'after'")
    assert kernel in kernels(collaborating)


async def test_answer_says_that_a_restart_during_the_run_took_all_variables(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    long = f"import pathlib; pathlib.Path({str(begun)!r}).touch()\n{waits_for(tmp_path / 'never')}"
    path = collaborating.notebook("x = 1", long, "'x' in globals()")
    kernel = kernel_for(collaborating, path)
    await use(client, path)
    for known in (False, True):  # whether Quire ran a cell in it
        if known:
            await said(client, "execute_cell", cell_index=0)
        answers: list[str] = []

        async def run(answers: list[str] = answers) -> None:
            answers.append(await refused(client, "execute_cell", cell_index=1, timeout=int(DEADLINE)))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await appears(begun)
            begun.unlink()
            collaborating.call("POST", f"api/kernels/{kernel}/restart")
        [said_of_it] = answers
        assert "restarted" in said_of_it and "Variables are as they were" not in said_of_it, said_of_it
        assert "All variables of the kernel are gone" in said_of_it, said_of_it
        assert ("Run again: cell" in said_of_it) == known, said_of_it
        assert (await said(client, "execute_cell", cell_index=2)).startswith("False")


async def test_unstoppable_code_in_our_kernel_is_killed(client: Client[Any], collaborating: JupyterServer) -> None:
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"
    path = collaborating.notebook(stubborn, "'after'")
    await use(client, path)
    assert "was killed" in await refused(client, "execute_cell", cell_index=0, timeout=2)
    assert (await said(client, "execute_cell", cell_index=1)).startswith("'after'")


async def test_timeout_of_a_queued_run_does_not_interrupt_a_persons_cell(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    path = collaborating.notebook("'mine'")
    kernel = kernel_for(collaborating, path)
    person = remote_client(collaborating.url, collaborating.token, agent="a person")
    try:
        connection = await person.kernels.connect(kernel)
        code = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.05)\n'done'"
        theirs = await connection.execute(code)
        while (await theirs.next_message()).kind != "execute_input":
            pass
        await use(client, path)
        late = await refused(client, "execute_cell", cell_index=0, timeout=2)
        assert "It did not begin" in late
        gate.touch()
        with anyio.fail_after(DEADLINE):
            while (message := await theirs.next_message()).kind != "execute_reply":
                pass
        assert message.content["status"] == "ok"
    finally:
        await person.close()


async def test_input_is_asked_from_the_client_or_refused(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    path = collaborating.notebook("name = input('Who? ')\nprint('Hello', name)")

    async def person(message: str, *_: Any) -> dict[str, str]:
        assert "Who?" in message
        return {"value": "Ann"}

    async with quire(tmp_path, collaborating, person=person) as asked:
        await use(asked, path)
        answer = await call(asked, "execute_cell", cell_index=0, timeout=60)
        assert "Hello Ann" in text(answer)
    await use(client, path)
    assert "EOFError" in await refused(client, "execute_cell", cell_index=0, timeout=60)


async def test_input_that_misses_its_interrupt_is_interrupted_again(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    missed = (
        "import signal\ncame = []\ndef heard(*given):\n    came.append(1)\n"
        "    if len(came) > 1:\n        signal.default_int_handler(*given)\n"
        "signal.signal(signal.SIGINT, heard)\ninput('Who? ')"
    )
    path = collaborating.notebook(missed)
    await use(client, path)
    assert "EOFError" in await refused(client, "execute_cell", cell_index=0, timeout=600)


async def test_errors_name_a_wrong_address_token_path_or_kernel(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    unused = f"http://127.0.0.1:{free_port()}"
    for given, words in (
        ({"jupyter_url": unused}, unused),
        ({"jupyter_url": collaborating.url, "jupyter_token": "wrong"}, "token"),
        ({"jupyter_url": "ftp://example"}, "no address of a Jupyter server"),
        ({"jupyter_url": collaborating.url, "jupyter_token": "env:NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
    ):
        assert words in await refused(client, "connect_to_jupyter", **given)
    for path, words in (
        ("no/such.ipynb", "no/such.ipynb"),
        ("../outside.ipynb", "outside the Jupyter server's root"),
        ("data.csv", "must end with .ipynb"),
    ):
        assert words in await refused(client, "use_notebook", notebook_name="b", notebook_path=path)
    path = collaborating.notebook("1")
    wrong = await refused(client, "use_notebook", notebook_name="b", notebook_path=path, kernel_id="none")
    assert "'none' not found in jupyter server" in wrong
    assert "is not connected" in await refused(client, "list_files", server="unknown")
    assert "outside" in await refused(client, "list_files", path="../..")


async def test_silent_server_is_an_error_and_is_used_again_afterwards(
    tmp_path: Path,
) -> None:
    with jupyter(tmp_path / "jupyter") as server:
        path = server.notebook("'again'")
        async with quire(tmp_path, server) as client:
            await use(client, path)
            await said(client, "execute_cell", cell_index=0)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with anyio.fail_after(120):
                    silent = await refused(client, "list_kernels")
                assert server.url.rstrip("/") in silent
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert "python3" in await said(client, "list_kernels")
            assert (await said(client, "execute_cell", cell_index=0)).startswith("'again'")
