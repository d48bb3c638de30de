"""Quire itself with the suite's fixtures put beside its tools: what is tested is our transport and our middleware."""

from __future__ import annotations

import sys
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from mcp.server.subscriptions import PromptsListChanged

from quire import cli, compose
from quire.core.app import App
from quire.core.model import LOCAL
from quire.settings import Settings
from tests.conformance import fixtures, rounds

_mcp = compose.mcp


def with_fixtures(app: App, settings: Settings, auth: AuthProvider | None = None) -> FastMCP[Any]:
    server = _mcp(app, settings, auth)
    fixtures.register(server)
    rounds.register(server)
    _changes(server, app)
    return server


def _changes(server: FastMCP[Any], app: App) -> None:
    """The list of tools changes as it does in Quire: a notebook's code publishes one."""

    @server.tool(output_schema=None)
    async def test_trigger_tool_change() -> str:
        """Publishes a tool, or takes it back."""
        notebook = await app.notebooks.get_or_create(LOCAL, "published")
        there = bool(app.gateway.native_of(notebook.id))
        code = "caps.unregister('double')" if there else "@capability(expose=True)\ndef double(n: int): return 2 * n"
        await app.runs.wait(await app.runs.start(notebook, code))
        return "The list of tools has changed."

    @server.tool(output_schema=None)
    async def test_trigger_prompt_change() -> str:
        """Says that the prompts have changed: Quire's own never do, so the news itself is made here."""
        listening = server._mcp_server.get_request_handler("subscriptions/listen")
        assert listening is not None
        await listening.handler._bus.publish(PromptsListChanged())  # type: ignore[attr-defined]  # of its ListenHandler
        return "The list of prompts has changed."


if __name__ == "__main__":
    compose.mcp = with_fixtures  # all else is as `quire serve` does it
    cli.main(
        ["serve", "--server-transport", "http", "--server-port", "0", "--kernel-preload", "", "--data-dir", sys.argv[1]]
    )
