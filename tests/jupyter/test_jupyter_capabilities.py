"""Capabilities in a kernel of a Jupyter server, relayed over its stdin channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from quire.clients.jupyter.client import remote_client
from tests.support.jupyter.quires import kernel_for, quire, said
from tests.support.jupyter.servers import JupyterServer
from tests.support.quick_backend import GOOD
from tests.support.servers import call, text


async def test_agent_code_calls_capabilities_and_a_persons_cell_cannot(
    tmp_path: Path, collaborating: JupyterServer
) -> None:
    path = collaborating.notebook("0")
    kernel = kernel_for(collaborating, path)
    async with quire(tmp_path, collaborating, toolsets="notebook,repl,capabilities") as client:
        await said(client, "create_notebook", name="book", runtime="jupyter", mirror=path)
        await said(client, "install_capability", name="good", server_command=GOOD)
        assert "good (" in await said(client, "execute", code="caps")
        added = await call(client, "execute", code="[good.add(a, b=2) for a in range(3)]")
        assert added.structured_content["return_value"] == [2, 3, 4], text(added)
        failed = await call(client, "execute", code="good.fail(why='of the test')")
        assert failed.is_error and failed.structured_content["error_type"] == "ToolError"
        assert "of the test" in failed.structured_content["error_message"]
        assert (await call(client, "execute", code="1 + 1")).structured_content["return_value"] == 2
        assert "CapabilityGone" in await by_a_person(collaborating, kernel, "good.add(1)")
    left = {each.name for each in (collaborating.root).rglob("*quire*")}
    assert left == set()


async def by_a_person(server: JupyterServer, kernel: str, code: str) -> Any:
    """The name of what a person's own cell raises in that kernel."""
    person = remote_client(server.url, server.token, agent="a person")
    try:
        execution = await (await person.kernels.connect(kernel)).execute(code)
        with anyio.fail_after(60):
            while (message := await execution.next_message()).kind != "execute_reply":
                pass
        return message.content.get("ename", "")
    finally:
        await person.close()
