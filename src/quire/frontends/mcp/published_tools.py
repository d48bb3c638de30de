"""Tools that the code of a notebook publishes (`expose=True`). Its owner sees them while the kernel lives.

A call runs as a cell of that notebook, so it is recorded and can be rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool, ToolResult
from mcp_types import ListToolsRequest, ToolAnnotations

from quire.core.errors import InvalidRequest
from quire.core.model import KernelSpec, NotebookId, Principal
from quire.frontends.mcp import fastmcp_internals
from quire.frontends.mcp.argument_errors import check_numbers
from quire.frontends.mcp.callers import caller_of
from quire.frontends.mcp.notices import Notices
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ListedTool

_MAX_TOOLS = 50  # of one notebook
_MAX_DESCRIPTION_CHARS = 1_000
_MAX_SCHEMA_CHARS = 5_000  # a longer one is listed as any object
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, kw_only=True)
class PublishedTool:
    listed: ListedTool
    spec: KernelSpec  # of the kernel whose code published it
    expression: str  # what the cell calls

    @property
    def name(self) -> str:
        return self.listed.name

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        check_numbers(self.name, arguments)
        if wrong := [name for name in arguments if not name.isidentifier()]:  # they become code
            raise InvalidRequest(f"{self.name} has no argument {', '.join(map(repr, wrong))}. Nothing was run.")
        return arguments

    async def call(self, ctx: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        notebook = await ctx.app.notebooks.get(self.spec.owner, self.spec.name)
        code = f"{self.expression}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        cell, notice = await ctx.run(notebook, code, answers=True)
        return await ctx.render.execution(notebook, cell, notice)


class PublishedTools(Middleware):
    """What is published now, and a middleware that adds it to the list of tools."""

    def __init__(self, notices: Notices, reserved: Collection[str]) -> None:
        """`reserved`: names of the server's own tools, which are never replaced."""
        self._notices = notices
        self._reserved = reserved
        self._offers: dict[Principal, dict[NotebookId, list[PublishedTool]]] = {}  # the oldest notebook first
        self._published: dict[Principal, dict[str, PublishedTool]] = {}

    def update(self, spec: KernelSpec, native: list[dict[str, Any]]) -> None:
        """Note what the capabilities of a notebook's own code are now."""
        exposed = (
            tool for capability in native if capability.get("expose") is True for tool in _tools(spec, capability)
        )
        offers = list(islice(exposed, _MAX_TOOLS))
        notebooks = self._offers.setdefault(spec.owner, {})
        notebooks[spec.notebook] = offers
        if not offers:
            del notebooks[spec.notebook]
        wanted: dict[str, PublishedTool] = {}
        for tool in (tool for offers in notebooks.values() for tool in offers):
            if tool.name not in self._reserved:
                wanted.setdefault(tool.name, tool)  # of two notebooks the first has the name
        before = [_listing(tool) for tool in self.of(spec.owner).values()]
        self._published[spec.owner] = wanted
        if not wanted:
            del self._published[spec.owner]
        if before != [_listing(tool) for tool in wanted.values()]:
            self._notices.tools_changed(spec.owner)

    def of(self, principal: Principal) -> Mapping[str, PublishedTool]:
        """By name; other principals do not see them."""
        return self._published.get(principal, {})

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        tools = await call_next(context)
        if not self._published:
            return tools
        return [
            *tools,
            *(tool.listed for tool in self.of(caller_of(fastmcp_internals.current_request()).principal).values()),
        ]


def _tools(spec: KernelSpec, capability: dict[str, Any]) -> Iterator[PublishedTool]:
    name = str(capability.get("name", ""))
    for method in capability.get("methods", []):
        own = str(method.get("name", ""))
        is_function = own == name  # it is its own method
        called = name if is_function else f"{name}_{own}"
        if not called.isidentifier() or len(called) > _MAX_NAME_CHARS:
            continue
        listed = ListedTool(
            name=called,
            description=str(method.get("description") or capability.get("about") or "")[:_MAX_DESCRIPTION_CHARS],
            parameters=_schema(method.get("input")),
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
        )
        expression = f"caps[{name!r}]" if is_function else f"caps[{name!r}].{own}"
        yield PublishedTool(listed=listed, spec=spec, expression=expression)


def _schema(given: Any) -> dict[str, Any]:
    if isinstance(given, dict) and given.get("type") == "object" and len(json.dumps(given)) <= _MAX_SCHEMA_CHARS:
        return given
    return {"type": "object"}


def _listing(tool: PublishedTool) -> tuple[str, str | None, str]:
    return tool.name, tool.listed.description, json.dumps(tool.listed.parameters, sort_keys=True)
