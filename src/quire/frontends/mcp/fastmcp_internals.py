"""The one module that uses private parts of fastmcp and of the MCP SDK's server.

Each function has a test in `tests/unit/test_fastmcp_internals.py`, and pyproject.toml pins the minor versions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.dependencies import fastmcp_request_ctx
from fastmcp.server.low_level import FastMCPServerMiddleware, LowLevelServer
from mcp.server.connection import Connection
from mcp.server.context import ServerMiddleware, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette


def low_level(server: FastMCP[Any]) -> LowLevelServer[Any]:
    """The SDK's server below fastmcp's."""
    return server._mcp_server


def insert_middleware(server: FastMCP[Any], *steps: ServerMiddleware[Any]) -> None:
    """Put these steps into the SDK's middleware, after fastmcp's step: it opens the span and binds the request."""
    chain = low_level(server).middleware
    place = next(at for at, step in enumerate(chain) if isinstance(step, FastMCPServerMiddleware))
    chain[place + 1 : place + 1] = steps


def set_schema_lookup(server: FastMCP[Any], lookup: Callable[[str], Mapping[str, Any] | None]) -> None:
    """How the SDK finds the input schema of a tool that is called over HTTP. By default it lists all tools."""
    low_level(server).get_tool_input_schema = lookup


def connection_of(session: ServerSession) -> Connection:
    """The connection of a session, which the SDK makes for each request."""
    return session._connection


def current_request() -> ServerRequestContext[Any, Any]:
    """The request being answered, where fastmcp does not pass it: in resources and prompts."""
    bound = fastmcp_request_ctx.get()
    assert bound is not None, "no request is being answered"
    return bound._srctx


def on_session_manager(app: Starlette, configure: Callable[[StreamableHTTPSessionManager], None]) -> None:
    """Call `configure` with the session manager that fastmcp makes when `app`, made by its `http_app`, starts."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: Any) -> AsyncIterator[Any]:
        async with inner(running) as state:
            for route in app.routes:
                endpoint = getattr(route, "endpoint", None)
                endpoint = getattr(endpoint, "app", endpoint)  # inside a check of tokens
                manager = getattr(endpoint, "session_manager", None)
                if isinstance(manager, StreamableHTTPSessionManager):
                    configure(manager)
            yield state

    app.router.lifespan_context = lifespan
