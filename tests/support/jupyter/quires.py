"""A Quire process that works with a real Jupyter server, and what a person does there meanwhile."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from fastmcp import Client

from tests.support.jupyter.servers import JupyterServer
from tests.support.servers import call, stdio_client, text
from tests.support.waiting import DEADLINE

TOOLSETS = "jupyter,notebook,repl,timeline,sandbox"
IMPATIENT = """
from quire.cli import main
from quire.runtimes.jupyter import kernel

kernel._INTERRUPT_TIMEOUT_S = 1.0
main()
"""
"""A Quire that waits one second, not eight, for code in a Jupyter kernel to stop when interrupted."""


def quire(folder: Path, *servers: JupyterServer, **settings: Any) -> Client[Any]:
    given = {
        "jupyter_url": ",".join(server.url for server in servers),
        "jupyter_token": ",".join(server.token for server in servers),
        "toolsets": TOOLSETS,
    }
    return stdio_client(folder / "quire", **{**given, **settings})


async def said(client: Client[Any], tool: str, /, **arguments: Any) -> str:
    """The text of an answer that is no error."""
    answer = await call(client, tool, **arguments)
    assert not answer.is_error, text(answer)
    return text(answer)


async def refused(client: Client[Any], tool: str, /, **arguments: Any) -> str:
    """The text of an answer that is one."""
    answer = await call(client, tool, **arguments)
    assert answer.is_error, text(answer)
    return text(answer)


async def release_notebooks(client: Client[Any]) -> None:
    """Stop using every notebook, so that the next test starts without one; kernels that Quire started end."""
    listed = text(await call(client, "list_notebooks")).splitlines()[1:]
    for name in (line.split("\t")[0] for line in listed):
        await call(client, "unuse_notebook", notebook_name=name)


def kernel_for(server: JupyterServer, path: str) -> str:
    """A person opens the document in their page: its session and its kernel, by id."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    return str(server.call("POST", "api/sessions", body)["kernel"]["id"])


def kernels(server: JupyterServer) -> set[str]:
    return {each["id"] for each in server.call("GET", "api/kernels")}


def saved_when(server: JupyterServer, path: str, true: Any) -> Any:
    """The file once it is as it should be."""
    end = time.monotonic() + DEADLINE
    while True:
        found: Any = None
        with contextlib.suppress(ValueError):  # it is being written this moment
            found = server.saved(path)
            if true(found["cells"]):
                return found["cells"]
        assert time.monotonic() < end, found
        time.sleep(0.05)
