"""`quire jupyter-mcp-server`: started as jupyter-mcp-server is, it serves the same document with the same tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.support.jupyter.quires import kernels, refused, said
from tests.support.jupyter.servers import JupyterServer, free_port
from tests.support.servers import http_server, server_environment
from tests.support.waiting import DEADLINE

TOKEN = "for-clients"
OVER_HTTP = ("jupyter-mcp-server", "start", "--transport", "streamable-http", "--port", "0")


@pytest.fixture(scope="module")
def replacement(tmp_path_factory: pytest.TempPathFactory, collaborating: JupyterServer) -> Iterator[str]:
    """The address of one that is given its document by options and its tokens by variables."""
    document = collaborating.notebook("'zero'", "'one'", "'two'")
    options = ("--document-url", collaborating.url, "--document-id", document, "--runtime-url", collaborating.url)
    tokens = {"DOCUMENT_TOKEN": collaborating.token, "RUNTIME_TOKEN": collaborating.token, "MCP_TOKEN": TOKEN}
    folder = tmp_path_factory.mktemp("replacement") / "quire"
    with http_server(folder, command=(*OVER_HTTP, *options), environment=tokens) as (url, _):
        yield url


def bearer(url: str, mode: str = "legacy") -> Client[Any]:
    return Client(StreamableHttpTransport(url, headers={"Authorization": f"Bearer {TOKEN}"}), mode=mode)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_document_named_at_the_start_is_in_use(replacement: str, mode: str) -> None:
    async with bearer(replacement, mode) as client:
        assert "'zero'" in await said(client, "read_cell", cell_index=0)
        assert (await said(client, "execute_cell", cell_index=1, timeout_seconds=DEADLINE)).startswith("'one'")
        assert "default" in await said(client, "list_notebooks")


async def test_health_route_needs_no_token_and_reports_the_kernel(
    replacement: str, collaborating: JupyterServer
) -> None:
    async with httpx2.AsyncClient() as http:
        health = (await http.get(replacement.replace("/mcp", "/api/healthz"))).json()
    assert (health["status"], health["kernel_status"]) == ("healthy", "alive")
    assert kernels(collaborating)


async def test_client_without_the_token_is_refused(replacement: str) -> None:
    async with httpx2.AsyncClient() as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": b"Bearer \xe9"}):
            assert (await http.post(replacement, json={}, headers=headers)).status_code == 401


async def test_the_prompt_cites_cells(replacement: str) -> None:
    async with bearer(replacement) as client:
        cited = await client.get_prompt("jupyter_cite", {"prompt": "Explain this.", "cell_indices": "0,2"})
    shown = cited.messages[0].content.text
    assert shown.startswith("USER Cite cells [0, 2] from notebook default.\n=====Cell 0 | type: code")
    assert "'zero'" in shown and "'two'" in shown and "'one'" not in shown
    assert shown.endswith("=====End of Cited Cells=====\nExplain this.")


async def test_a_document_that_is_not_there_leaves_the_other_tools(
    tmp_path: Path, collaborating: JupyterServer
) -> None:
    options = ("--jupyter-url", collaborating.url, "--jupyter-token", collaborating.token, "--document-id", "no.ipynb")
    with http_server(tmp_path / "quire", command=(*OVER_HTTP, *options, "--insecure-mcp-noauth")) as (url, _):
        async with Client(StreamableHttpTransport(url)) as client, httpx2.AsyncClient() as http:
            health = (await http.get(url.replace("/mcp", "/api/healthz"))).json()
            assert health["kernel_status"] == "not_initialized"
            assert "not found" in await refused(client, "read_cell", cell_index=0)
            there = collaborating.notebook("1")
            assert "Successfully" in await said(client, "use_notebook", notebook_name="n", notebook_path=there)
            assert "=====Cell 0" in await said(client, "read_cell", cell_index=0)


def test_http_without_a_token_is_refused_at_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quire", *OVER_HTTP, "--jupyter-url", f"http://127.0.0.1:{free_port()}"]
    done = subprocess.run(
        command, env=server_environment(tmp_path / "quire"), capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 2 and "--insecure-mcp-noauth" in done.stderr
    assert not (tmp_path / "quire").exists()
