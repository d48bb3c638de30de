"""Private parts of fastmcp and of the MCP SDK that Quire uses: one test for each function of the module that does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

import quire
from quire.core.errors import InvalidRequest
from quire.core.notebooks.access import LOCAL_CALLER
from quire.frontends.http.auth import SharedTokenVerifier
from quire.frontends.mcp import fastmcp_internals
from quire.frontends.mcp.callers import caller_of

PRIVATE = re.compile(r"\b(_mcp_server|_lifespan_manager|_srctx|_connection|FastMCPServerMiddleware)\b")


@asynccontextmanager
async def lifespan(server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"has_auth": False}


@pytest.fixture
def server() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("test", lifespan=lifespan)

    @server.resource("test://method")
    def method() -> str:
        return fastmcp_internals.current_request().method

    return server


def test_low_level_is_the_server_of_the_sdk(server: FastMCP[Any]) -> None:
    low = fastmcp_internals.low_level(server)
    assert isinstance(low, Server)
    assert low.get_request_handler("tools/call") is not None


async def test_inserted_middleware_sees_the_request_that_fastmcp_has_bound(server: FastMCP[Any]) -> None:
    seen: list[tuple[str, str]] = []

    def step(name: str) -> Any:
        async def middleware(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
            assert fastmcp_internals.current_request().request_id == ctx.request_id
            seen.append((name, ctx.method))
            return await call_next(ctx)

        return middleware

    fastmcp_internals.insert_middleware(server, step("first"), step("second"))
    async with Client(server) as client:
        await client.list_tools()
    assert [entry for entry in seen if entry[1] == "tools/list"] == [("first", "tools/list"), ("second", "tools/list")]


def test_schema_lookup_is_the_one_that_the_sdk_asks(server: FastMCP[Any]) -> None:
    fastmcp_internals.set_schema_lookup(server, {"tool": {"type": "object"}}.get)
    lookup = fastmcp_internals.low_level(server).get_tool_input_schema
    assert lookup is not None and lookup("tool") == {"type": "object"}


async def test_requests_of_one_session_share_a_connection(server: FastMCP[Any]) -> None:
    connections: list[Connection] = []

    async def middleware(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        connections.append(fastmcp_internals.connection_of(ctx.session))
        return await call_next(ctx)

    fastmcp_internals.insert_middleware(server, middleware)
    async with Client(server, mode="legacy") as client:
        await client.list_tools()
        await client.list_tools()
    assert len(connections) > 1 and len(set(map(id, connections))) == 1


async def test_current_request_is_the_request_that_a_resource_answers(server: FastMCP[Any]) -> None:
    async with Client(server) as client:
        (found,) = await client.read_resource("test://method")
    assert getattr(found, "text", "") == "resources/read"


@pytest.mark.parametrize("auth", [None, SharedTokenVerifier("token")])
async def test_session_manager_is_configured_when_the_app_starts(auth: SharedTokenVerifier | None) -> None:
    server: FastMCP[Any] = FastMCP("test", auth=auth)
    app, found = server.http_app(), list[StreamableHTTPSessionManager]()
    fastmcp_internals.on_session_manager(app, found.append)
    assert not found
    async with app.router.lifespan_context(app):
        assert len(found) == 1 and hasattr(found[0].asgi_app, "max_body_size") and hasattr(found[0], "max_sessions")


@pytest.mark.parametrize("has_auth", [False, True])
async def test_request_without_http_is_the_local_users_unless_the_server_has_auth(has_auth: bool) -> None:
    @asynccontextmanager
    async def configured(server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"has_auth": has_auth}

    server: FastMCP[Any] = FastMCP("test", lifespan=configured)
    callers: list[Any] = []

    @server.resource("test://caller")
    def caller() -> str:
        try:
            callers.append(caller_of(fastmcp_internals.current_request()))
        except InvalidRequest as error:
            callers.append(str(error))
        return ""

    async with Client(server) as client:
        await client.read_resource("test://caller")
    assert callers == (["It cannot be told whose request this is. Nothing was done."] if has_auth else [LOCAL_CALLER])


def test_no_other_module_of_the_frontends_uses_private_parts() -> None:
    folder = Path(quire.__file__).parent / "frontends"
    users = {path.name for path in folder.rglob("*.py") if PRIVATE.search(path.read_text("utf-8"))}
    assert users == {"fastmcp_internals.py"}
