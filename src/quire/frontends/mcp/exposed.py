"""Capabilities that a notebook's own code publishes: each method a tool of this server while the kernel lives.

A call is a cell of that notebook, so that what it did is seen, recorded and can be stepped back from.
"""

from __future__ import annotations

import json
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool, ToolResult
from mcp_types import ToolAnnotations
from pydantic import PrivateAttr

from quire.core.errors import Refused
from quire.core.model import KernelSpec, NotebookId
from quire.frontends.mcp.desk import Desk, refusals
from quire.frontends.mcp.notices import Notices

_MOST = 50  # tools one notebook may publish
_TEXT = 1_000  # characters of a description
_SCHEMA = 5_000  # characters of a schema; a longer one is said loosely
_NAME = 64


class Exposed:
    def __init__(self, server: FastMCP[Any], desk: Desk, notices: Notices, schemas: dict[str, Any]) -> None:
        self._server = server
        self._desk = desk
        self._notices = notices
        self._schemas = schemas  # of all tools, for the SDK
        self._ours = frozenset(schemas)  # never to be replaced
        self._offers: dict[NotebookId, list[Tool]] = {}  # by notebook, the one that was first
        self._published: dict[str, Tool] = {}

    def heard(self, spec: KernelSpec, native: list[dict[str, Any]]) -> None:
        """A notebook's code offers something else now."""
        offers = [tool for each in native if each.get("expose") is True for tool in self._tools(spec, each)]
        self._offers[spec.notebook] = offers[:_MOST]
        if not offers:
            del self._offers[spec.notebook]
        wanted: dict[str, Tool] = {}
        for tool in (tool for offers in self._offers.values() for tool in offers):
            if tool.name not in self._ours:
                wanted.setdefault(tool.name, tool)  # of two notebooks the first has the name
        if list(map(id, wanted.values())) != list(map(id, self._published.values())):  # alike is not the same
            self._publish(wanted)

    def _publish(self, wanted: dict[str, Tool]) -> None:
        before = [_said(tool) for tool in self._published.values()]
        for name in self._published:
            self._server.local_provider.remove_tool(name)
            self._schemas.pop(name, None)
        for name, tool in wanted.items():
            self._server.add_tool(tool)
            self._schemas[name] = tool.parameters
        self._published = wanted
        if before != [_said(tool) for tool in wanted.values()]:
            self._notices.tools_changed()

    def _tools(self, spec: KernelSpec, native: dict[str, Any]) -> list[Tool]:
        name, found = str(native.get("name", "")), list[Tool]()
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
            found.append(tool)
        return found


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
            raise Refused(f"{self.name} has no argument {', '.join(map(repr, odd))}. Nothing was run.")
        code = f"{self._call}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        cell, notice = await desk.run(ctx, notebook, code)
        return await desk.render.execution(notebook, cell, notice)


def _schema(given: Any) -> dict[str, Any]:
    if isinstance(given, dict) and given.get("type") == "object" and len(json.dumps(given)) <= _SCHEMA:
        return given
    return {"type": "object"}


def _said(tool: Tool) -> tuple[str, str | None, str]:
    return tool.name, tool.description, json.dumps(tool.parameters, sort_keys=True)
