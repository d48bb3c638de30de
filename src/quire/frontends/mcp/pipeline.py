"""What a request of a client passes through, in this order:

1. fastmcp binds the request and opens its span;
2. audit: a call is counted and written to the audit log before its answer is sent, refused ones included;
3. rate limit: too many requests over HTTP are refused;
4. the SDK checks the message and opens the sealed state that a client brings back;
5. argument errors: a call that names no tool, or arguments that do not fit, is refused in a sentence;
6. dispatch: the tool runs.

Steps 5 and 6 answer `tools/call` in place of fastmcp, which would look up the tool twice in all its providers and bind
more context for each call. All other methods, and tools that were added to the server beside Quire's, are fastmcp's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.telemetry import server_span
from fastmcp.tools import ToolResult
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

from quire.core.errors import InvalidRequest, QuireError
from quire.core.limits.quotas import RateLimiter
from quire.core.ops.audit import CallLog
from quire.frontends.mcp import fastmcp_internals
from quire.frontends.mcp.audit_middleware import AuditedRequest, AuditMiddleware, CallRecord
from quire.frontends.mcp.client_request import ClientRequest
from quire.frontends.mcp.elicitation import ClientMustAsk
from quire.frontends.mcp.published_tools import PublishedTools
from quire.frontends.mcp.rate_limit import RateLimitMiddleware
from quire.frontends.mcp.tool_context import ToolContext, ToolServices
from quire.frontends.mcp.tool_registry import ToolRegistry

log = logging.getLogger(__name__)


def install(
    server: FastMCP[Any],
    *,
    calls: CallLog,
    rates: RateLimiter,
    services: ToolServices,
    registry: ToolRegistry,
    published: PublishedTools,
    unknown: Callable[[str, list[str]], str],
) -> None:
    """`unknown`: the message about a tool that does not exist, given the names of those that do."""
    fastmcp_internals.insert_middleware(server, AuditMiddleware(calls, registry.tools), RateLimitMiddleware(rates))
    low = fastmcp_internals.low_level(server)
    other_tools = low.get_request_handler("tools/call")
    assert other_tools is not None
    dispatcher = _Dispatcher(server, services, registry, published, unknown, other_tools.handler)
    low.add_request_handler("tools/call", CallToolRequestParams, dispatcher.call)


@dataclass(frozen=True)
class _Dispatcher:
    server: FastMCP[Any]
    services: ToolServices
    registry: ToolRegistry
    published: PublishedTools
    unknown: Callable[[str, list[str]], str]
    other_tools: Callable[..., Any]  # fastmcp's handler, for tools that are not Quire's

    async def call(
        self, request: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        assert isinstance(request, AuditedRequest)
        record = request.record
        try:
            ctx = ToolContext(self.services, ClientRequest.of(request, params), record)
            published = self.published.of(ctx.client.principal)
            tool = self.registry.tools.get(params.name) or published.get(params.name)
            if tool is None and await self.server.get_tool(params.name) is not None:
                answer: CallToolResult | InputRequiredResult = await self.other_tools(request, params)
                return answer
            if tool is None:
                raise InvalidRequest(self.unknown(params.name, [*self.registry.listed, *published]))
            arguments = tool.checked(params.arguments or {})
            self._name_span(tool.name)
            return _answer(await tool.call(ctx, arguments), record)
        except QuireError as error:
            record.set_error(error)
            return _error(str(error))
        except ClientMustAsk as question:
            record.outcome = "asked"
            return question.result
        except Exception as error:
            if isinstance(error, MCPError) and error.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise
            log.exception("the tool %s", params.name)
            return _error(f"Error calling tool {params.name!r}: {error}")

    def _name_span(self, tool: str) -> None:
        """As fastmcp does. The call is outside the block, which would record errors: their messages may quote code."""
        with server_span(f"tools/call {tool}", "tools/call", self.server.name, "tool", tool, tool_name=tool):
            pass


def _answer(result: ToolResult, record: CallRecord) -> CallToolResult:
    """The result, with a warning about its notebook if there is one."""
    if record.warning:
        result.content.append(TextContent(type="text", text=f"[WARNING] {record.warning}"))
        if result.structured_content is not None:
            notices = (result.structured_content.get("notice"), record.warning)
            result.structured_content["notice"] = " ".join(filter(None, notices))
    return CallToolResult(
        content=result.content, structured_content=result.structured_content, is_error=result.is_error
    )


def _error(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)
