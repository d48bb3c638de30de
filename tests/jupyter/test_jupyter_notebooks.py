"""Jupyter documents through the tools that every notebook has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from quire.clients.jupyter.client import remote_client
from tests.support.jupyter.quires import kernel_for, quire, refused, said, saved_when
from tests.support.jupyter.servers import JupyterServer
from tests.support.servers import SharedServer, call, text
from tests.support.waiting import DEADLINE, until

TOOLSETS = "notebook,repl,timeline,sandbox"


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {"toolsets": TOOLSETS}


@pytest.fixture
async def client(shared_quire: SharedServer) -> Client[Any]:
    return await shared_quire.client()


async def made(client: Client[Any], path: str, name: str = "") -> Any:
    """A notebook of the document, named after it unless a name is given."""
    stem = path.removesuffix(".ipynb")
    answer = await call(client, "create_notebook", name=name or stem, runtime="jupyter", mirror=path)
    assert not answer.is_error, text(answer)
    return answer.structured_content


async def test_new_notebook_creates_a_document_on_the_server(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    name = f"new-{tmp_path.name}"
    answer = await call(client, "create_notebook", name=name, runtime="jupyter")
    assert answer.structured_content["runtime"] == "jupyter" and answer.structured_content["cells"] == 0
    ran = await call(client, "add_cell", code="x = 6 * 7\nx")
    assert ran.structured_content["state"] == "SUCCESS" and "42" in text(ran)
    cells = saved_when(collaborating, f"{name}.ipynb", lambda cells: cells and cells[-1]["execution_count"] == 1)
    assert cells[-1]["id"] == ran.structured_content["cell_id"]
    value = await call(client, "execute", code="x + 1")
    assert value.structured_content["return_value"] == 43
    again = await refused(client, "create_notebook", name=name, runtime="jupyter")
    assert "already" in again


async def test_stale_edit_of_a_document_is_refused_with_the_newer_source(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = collaborating.notebook("a = 1", "b = 2")
    assert (await made(client, path))["cells"] == 2
    listed = await call(client, "list_cells")
    assert [each["cell_id"] for each in listed.structured_content["cells"]] == ["cell-0", "cell-1"]
    version = listed.structured_content["cells"][0]["version"]
    person = remote_client(collaborating.url, collaborating.token, agent="a person")
    try:
        document = await person.documents.open(path)
        await document.change("cell-0", source="a = 'typed by a person'")
        with anyio.fail_after(DEADLINE):
            while (await call(client, "get_cell", cell_id_or_number=0)).structured_content["version"] == version:
                pass
        stale = await refused(client, "edit_cell", cell_id_or_number=0, code="a = 3", expected_version=version)
        assert "edited meanwhile" in stale and "a = 'typed by a person'" in stale
        await said(client, "edit_cell", cell_id_or_number="cell-1", code="b = 20", expected_version=1)
        await said(client, "move_cell", cell_id_or_number="cell-1", to_number=0)
        await said(client, "delete_cell", cell_id_or_number="cell-0")
        cells = saved_when(collaborating, path, lambda cells: [each["id"] for each in cells] == ["cell-1"])
        assert "".join(cells[0]["source"]) == "b = 20"
    finally:
        await person.close()


async def test_output_is_in_the_document_while_the_cell_runs(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"import pathlib, time\nprint('begun', flush=True)\nwhile not pathlib.Path({str(gate)!r}).exists():\n"
    path = collaborating.notebook(wait + "    time.sleep(0.05)\nprint('ended')")
    await made(client, path)
    person = remote_client(collaborating.url, collaborating.token, agent="a person")
    try:
        document = await person.documents.open(path)

        def printed() -> str:
            return "".join(each.get("text", "") for each in document.cells()[0]["outputs"])

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call(client, "execute_cell", cell_id_or_number=0, timeout=60))
            with anyio.fail_after(DEADLINE):
                while printed() != "begun\n":
                    await anyio.sleep(0.02)
            gate.touch()
        with anyio.fail_after(DEADLINE):
            while printed() != "begun\nended\n" or document.cells()[0]["execution_count"] != 1:
                await anyio.sleep(0.02)
    finally:
        await person.close()


async def test_python_namespace_is_shown_and_a_run_is_interrupted(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    await made(client, collaborating.notebook())
    code = (
        "import math\nrows = [1, 2, 3]\ndef area(r: float) -> float:\n    'Of a circle.'\n    return math.pi * r ** 2"
    )
    await said(client, "execute", code=code)
    assert "checkpoints: none, since a kernel of a Jupyter server can be neither copied" in await said(client, "state")
    state = (await call(client, "state")).structured_content
    assert state["variables"] == {"rows": "list of 3"} and state["kernel"] == "idle"
    assert state["defined_functions"] == [
        {"name": "area", "signature": "(r: float) -> float", "docstring": "Of a circle."}
    ]
    answers: list[Any] = []

    async def run() -> None:
        answers.append(await call(client, "execute", code="import time\ntime.sleep(600)", timeout=120))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(DEADLINE):
            while (await call(client, "state")).structured_content["kernel"] != "running":
                await anyio.sleep(0.02)
        await said(client, "interrupt")
    assert answers[0].structured_content["state"] == "INTERRUPTED"
    assert (await call(client, "execute", code="len(rows)")).structured_content["return_value"] == 3


async def test_unsupported_operations_of_a_jupyter_kernel_are_refused(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    await made(client, collaborating.notebook())
    await said(client, "execute", code="x = 1")
    for tool, given in (
        ("rollback", {"to": "start"}),
        ("save_state", {}),
        ("restore_state", {}),
        ("branch_notebook", {"name": "other"}),
    ):
        assert "keeps no earlier states" in await refused(client, tool, **given), tool
    assert "can be neither copied nor written down" in await said(client, "list_checkpoints")
    await said(client, "reset")
    assert "NameError" in await refused(client, "execute", code="x")


async def test_document_is_exported_as_ipynb_with_outputs(client: Client[Any], collaborating: JupyterServer) -> None:
    path = collaborating.notebook("'kept'")
    await made(client, path)
    await said(client, "execute_cell", cell_id_or_number=0)
    document = json.loads(await said(client, "export_notebook_as_ipynb"))
    assert document["metadata"]["kernelspec"]["name"] == "python3"
    assert document["cells"][0]["outputs"][0]["data"]["text/plain"] == "'kept'"
    assert document["cells"][0]["id"] == "cell-0" and document["cells"][0]["execution_count"] == 1


async def test_second_quire_on_the_same_data_finds_the_notebook(tmp_path: Path, collaborating: JupyterServer) -> None:
    path = collaborating.notebook("y = 8")
    theirs = kernel_for(collaborating, path)
    async with quire(tmp_path, collaborating, toolsets=TOOLSETS) as client:
        await made(client, path, "book")
        await said(client, "execute_cell", cell_id_or_number=0)
    async with quire(tmp_path, collaborating, toolsets=TOOLSETS) as client:
        await said(client, "use_notebook", name="book")
        answer = await call(client, "execute", code="y")
        assert answer.structured_content["return_value"] == 8 and "fresh kernel" not in text(answer)
    assert theirs in {each["id"] for each in collaborating.call("GET", "api/kernels")}
    async with quire(tmp_path, toolsets=TOOLSETS) as client:
        lost = await refused(client, "execute", code="y", notebook="book")
        assert "'jupyter' is not connected" in lost and "connect_to_jupyter" in lost


async def test_renamed_document_is_followed(tmp_path: Path, collaborating: JupyterServer) -> None:
    old = collaborating.notebook("x = 1", "x + 1", name=f"{tmp_path.name}/old.ipynb")
    new = f"{tmp_path.name}/new.ipynb"
    kernel = kernel_for(collaborating, old)
    async with quire(tmp_path, collaborating) as client:
        for name in ("book", "second"):
            await said(client, "use_notebook", notebook_name=name, notebook_path=old)
        await said(client, "execute_cell", cell_index=0, notebook_name="book")
        collaborating.call("PATCH", f"api/contents/{old}", {"path": new})
        [session] = [each for each in collaborating.call("GET", "api/sessions") if each["kernel"]["id"] == kernel]
        collaborating.call("PATCH", f"api/sessions/{session['id']}", {"path": new, "name": new})  # as its page does

        async def is_followed() -> bool:
            listed = await said(client, "list_notebooks")
            return listed.count(new) == 2 and old not in listed

        await until(is_followed, "both notebooks are listed with the new path")
        assert (await said(client, "execute_cell", cell_index=1, notebook_name="second")).startswith("2\n")
        collaborating.notebook("'another'", name=old)
        await said(client, "use_notebook", notebook_name="third", notebook_path=old)
        assert "'another'" in await said(client, "read_cell", cell_index=0, notebook_name="third")
        await said(client, "unuse_notebook", notebook_name="third")
    saved_when(collaborating, new, lambda cells: cells[1]["execution_count"])
    async with quire(tmp_path, collaborating) as client:
        assert "x + 1" in await said(client, "read_cell", cell_index=1, notebook_name="book")
        assert "x + 1" in await said(client, "read_cell", cell_index=1, notebook_name="second")
        assert kernel in await said(client, "list_notebooks")


async def test_the_runtimes_are_listed_with_the_servers(client: Client[Any], collaborating: JupyterServer) -> None:
    listed = await said(client, "list_runtimes")
    assert f"jupyter jupyter ({collaborating.url.rstrip('/')}" in listed


async def test_documents_may_be_on_one_server_and_run_on_another(
    tmp_path: Path, collaborating: JupyterServer, plain: JupyterServer
) -> None:
    path = collaborating.notebook("import os\nos.getcwd()")
    where = {"jupyter_kernel_url": plain.url, "jupyter_kernel_token": plain.token}
    before = {each["id"] for each in collaborating.call("GET", "api/kernels")}
    async with quire(tmp_path, collaborating, toolsets=TOOLSETS, **where) as client:
        await made(client, path)
        ran = await call(client, "execute_cell", cell_id_or_number=0)
        assert str(plain.root) in text(ran)
    saved_when(collaborating, path, lambda cells: cells[0]["execution_count"] == 1)
    assert {each["id"] for each in collaborating.call("GET", "api/kernels")} == before
