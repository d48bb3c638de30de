"""Capabilities that a notebook's own code publishes: each method a tool for its owner while the kernel lives.

A call is a cell of that notebook, so that what it did is seen, recorded and can be stepped back from.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool, ToolResult
from mcp import MCPError
from mcp_types import CallToolRequestParams, ListToolsRequest, ToolAnnotations
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from opentelemetry import trace
from pydantic import PrivateAttr

from quire.core.errors import InvalidRequest
from quire.core.model import KernelSpec, NotebookId, Principal
from quire.frontends.mcp import callers
from quire.frontends.mcp.desk import Desk, refusals
from quire.frontends.mcp.notices import Notices

log = logging.getLogger(__name__)
_MOST = 50  # tools one notebook may publish
_TEXT = 1_000  # characters of a description
_SCHEMA = 5_000  # characters of a schema; a longer one is said loosely
_NAME = 64


class Exposed(Middleware):
    def __init__(
        self,
        desk: Desk,
        notices: Notices,
        tools: Sequence[Tool],
        hidden: Sequence[Tool],
        unknown: Callable[[str, list[str]], str],
    ) -> None:
        """`unknown` is what is said of a tool that is not there, given the names of those that are."""
        self._unknown = unknown
        self._desk = desk
        self._notices = notices
        self._hidden = {tool.name for tool in hidden}  # which the framework does not know
        self._ours = {tool.name: tool for tool in (*tools, *hidden)}  # the server's own, which are never replaced
        self._offers: dict[Principal, dict[NotebookId, list[Tool]]] = {}  # by notebook, the one that was first
        self._published: dict[Principal, dict[str, Tool]] = {}

    def heard(self, spec: KernelSpec, native: list[dict[str, Any]]) -> None:
        """A notebook's code offers something else now."""
        offered = (tool for each in native if each.get("expose") is True for tool in self._tools(spec, each))
        offers = list(islice(offered, _MOST))
        every = self._offers.setdefault(spec.owner, {})
        every[spec.notebook] = offers
        if not offers:
            del every[spec.notebook]
        wanted: dict[str, Tool] = {}
        for tool in (tool for offers in every.values() for tool in offers):
            if tool.name not in self._ours:
                wanted.setdefault(tool.name, tool)  # of two notebooks the first has the name
        before = [_said(tool) for tool in self._published.get(spec.owner, {}).values()]
        self._published[spec.owner] = wanted
        if not wanted:
            del self._published[spec.owner]
        if before != [_said(tool) for tool in wanted.values()]:
            self._notices.tools_changed(spec.owner)

    def schema(self, name: str) -> dict[str, Any] | None:
        """What a tool takes, as whoever calls now sees it."""
        tool = self._ours.get(name) or self._own().get(name)
        return tool.parameters if tool is not None else None

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if isinstance(context.message, CallToolRequestParams):  # of all messages the one that must not cost
            return await self.on_call_tool(context, call_next)
        return await super().__call__(context, call_next)

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        return [*await call_next(context), *self._own().values()]

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        name, arguments = context.message.name, context.message.arguments or {}
        published = self._own().get(name)
        if published is not None:
            return await published.run(arguments)
        tool = self._ours.get(name)
        if tool is None:
            listed = [each for each in self._ours if each not in self._hidden]
            raise InvalidRequest(self._unknown(name, [*listed, *self._own()]))
        traced = trace.get_current_span().is_recording() and name not in self._hidden
        if traced:  # the framework says more of it in its span
            return await call_next(context)
        return await _run(tool, arguments)

    def _own(self) -> dict[str, Tool]:
        """What the notebooks of whoever calls now publish: nobody else sees it."""
        return self._published.get(callers.principal(), {}) if self._published else {}

    def _tools(self, spec: KernelSpec, native: dict[str, Any]) -> Iterator[Tool]:
        name = str(native.get("name", ""))
        for method in native.get("methods", []):
            own = str(method.get("name", ""))
            alone = own == name  # a function: it is its own method
            called = name if alone else f"{name}_{own}"
            if not called.isidentifier() or len(called) > _NAME:
                continue
            tool = _Published(
                name=called,
                description=str(method.get("description") or native.get("about") or "")[:_TEXT],
                parameters=_schema(method.get("input")),
                annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
            )
            tool._desk, tool._spec = self._desk, spec
            tool._call = f"caps[{name!r}]" if alone else f"caps[{name!r}].{own}"
            yield tool


async def _run(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    """As the framework does, which for each call would look the tool up among all, twice."""
    try:
        return await tool.run(arguments)
    except FastMCPError:
        raise
    except Exception as error:
        if isinstance(error, MCPError) and error.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            raise
        log.exception("the tool %s", tool.name)
        raise ToolError(f"Error calling tool {tool.name!r}: {error}") from error


class _Published(Tool):
    _desk: Desk = PrivateAttr()
    _spec: KernelSpec = PrivateAttr()
    _call: str = PrivateAttr()

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        result: ToolResult = await refusals(self._as_cell)(arguments)
        return result

    async def _as_cell(self, arguments: dict[str, Any]) -> ToolResult:
        ctx, desk = get_context(), self._desk
        notebook = await desk.app.notebooks.named(self._spec.owner, self._spec.name)
        if odd := [name for name in arguments if not name.isidentifier()]:  # they become code
            raise InvalidRequest(f"{self.name} has no argument {', '.join(map(repr, odd))}. Nothing was run.")
        code = f"{self._call}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        cell, notice = await desk.run(ctx, notebook, code, answers=True)
        return await desk.render.execution(notebook, cell, notice)


def _schema(given: Any) -> dict[str, Any]:
    if isinstance(given, dict) and given.get("type") == "object" and len(json.dumps(given)) <= _SCHEMA:
        return given
    return {"type": "object"}


def _said(tool: Tool) -> tuple[str, str | None, str]:
    return tool.name, tool.description, json.dumps(tool.parameters, sort_keys=True)
