"""The MCP server: tool sets, resources, prompts and notices over one App."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from fastmcp.server.dependencies import get_http_request
from mcp_types import Icon

from quire.core.app import App
from quire.frontends.mcp import fastmcp_internals, pipeline, prompts, resources
from quire.frontends.mcp.callers import caller_from_request
from quire.frontends.mcp.guidance import Guidance, unknown_tool
from quire.frontends.mcp.notices import Notices
from quire.frontends.mcp.published_tools import PublishedTools
from quire.frontends.mcp.render import Renderer
from quire.frontends.mcp.tool_context import ToolServices
from quire.frontends.mcp.tool_registry import NameRegistry, ToolRegistry
from quire.frontends.mcp.toolsets import (
    capabilities,
    files,
    jupyter,
    notebook,
    repl,
    sandbox,
    timeline,
    users,
)

_SETS: dict[str, Callable[[ToolRegistry], None]] = {
    "notebook": notebook.register,
    "repl": repl.register,
    "capabilities": capabilities.register,
    "timeline": timeline.register,
    "files": files.register,
    "sandbox": sandbox.register,
    "users": users.register,
    "jupyter": jupyter.register,
}

_ICON = (  # without a space: clients that check it against the schema want a URI
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%2024%2024'%3E%3Cpath%20d='M4%204c"
    "4-1%206%200%208%202%202-2%204-3%208-2v15c-4-1-6%200-8%202-2-2-4-3-8-2z'%20fill='none'%20stroke='%23555'%20stroke-"
    "width='2'/%3E%3C/svg%3E"
)


def build(
    app: App, toolsets: tuple[str, ...], *, result_chars: int, version: str, auth: AuthProvider | None = None
) -> FastMCP[Any]:
    """A server over a running App, which the caller closes after the server."""
    guidance, registry, notices = Guidance(toolsets), ToolRegistry(), Notices(app.sharing)
    for name in toolsets:
        _SETS[name](registry)
    published = PublishedTools(notices, registry.tools)
    services = ToolServices(
        app=app,
        guidance=guidance,
        notices=notices,
        render=Renderer(app.outputs, guidance, result_chars),
        result_chars=result_chars,
    )
    server: FastMCP[Any] = FastMCP(
        "quire",
        instructions=guidance.instructions(),
        version=version,
        icons=[Icon(src=_ICON, mime_type="image/svg+xml")],
        lifespan=_lifespan(app, notices, registry, published),
        middleware=[published],
        tools=list(registry.listed.values()),
        auth=auth,
    )
    pipeline.install(
        server,
        calls=app.calls,
        rates=app.rates,
        services=services,
        registry=registry,
        published=published,
        unknown=functools.partial(_unknown, toolsets),
    )
    notices.register(server)
    for prompt, title in registry.prompts:
        server.prompt(title=title)(resources.in_context(services, prompt))
    resources.register(server, services, files="files" in toolsets)
    resources.register_completions(server, services)
    prompts.register(server)
    return server


def _lifespan(
    app: App, notices: Notices, registry: ToolRegistry, published: PublishedTools
) -> Callable[[FastMCP[Any]], AbstractAsyncContextManager[dict[str, Any]]]:
    @asynccontextmanager
    async def lifespan(server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
        tools = await server.list_tools()  # the first listing imports lazily: now, and not when a client waits
        schemas = {tool.name: tool.parameters for tool in (*tools, *(each.listed for each in registry.tools.values()))}

        def schema(name: str) -> dict[str, Any] | None:
            if name in schemas:
                return schemas[name]
            tool = published.of(caller_from_request(get_http_request()).principal).get(name)
            return tool.listed.parameters if tool is not None else None

        fastmcp_internals.set_schema_lookup(server, schema)
        async with notices.relaying(app.feed):
            stop = app.gateway.listen(published.update)
            try:
                yield {"has_auth": server.auth is not None}
            finally:
                stop()

    return lifespan


def _unknown(toolsets: tuple[str, ...], name: str, offered: list[str]) -> str:
    """The message about a tool that does not exist: it may be in a tool set that is not offered."""
    elsewhere: dict[str, list[str]] = {}
    for other in (other for other in _SETS if other not in toolsets):
        names = NameRegistry()
        _SETS[other](names)
        for tool in (tool for tool in names.names if tool not in offered):
            elsewhere.setdefault(tool, []).append(other)
    return unknown_tool(name, offered, elsewhere)
