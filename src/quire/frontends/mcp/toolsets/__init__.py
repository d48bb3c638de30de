"""Vocabularies over the one core: each file is a tool set, and all act on the same notebooks."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.tools import FunctionTool
from mcp_types import Tool as MCPTool
from mcp_types import ToolAnnotations

from quire.frontends.mcp.desk import refusals
from quire.frontends.mcp.results import schema, short


class Shelf:
    """Where a tool set puts its tools; of two tools of one name the first stays."""

    def __init__(self, server: FastMCP[Any]) -> None:
        self._server = server
        self._names: set[str] = set()
        self.hidden: list[FunctionTool] = []  # answered, but not listed

    def put(
        self,
        tool: Callable[..., Any],
        title: str,
        result: Any,
        *,
        reads: bool = False,
        destroys: bool = False,
        repeats: bool = False,
        runs: bool = False,
        hidden: bool = False,
    ) -> None:
        """`reads`: changes nothing. `destroys`: something is gone after. `repeats`: twice is once. `runs`: any code.
        `hidden`: for those who know it; it is in no list."""
        if tool.__name__ in self._names:
            return
        self._names.add(tool.__name__)
        hints = ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=destroys or runs,
            idempotent_hint=repeats or reads,
            open_world_hint=runs,
        )
        offered = FunctionTool.from_function(
            _in_context(refusals(tool)),
            title=title,
            annotations=hints,
            output_schema=schema(result) if result is not None else None,
        )
        given = {name: getattr(offered, name) for name in FunctionTool.model_fields}
        made = _Plain(**{**given, "parameters": short(offered.parameters)})
        if hidden:
            self.hidden.append(made)
        else:
            self._server.add_tool(made)


class NameList(Shelf):
    """What a tool set puts here is noted by its name, and offered to nobody."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def put(self, tool: Callable[..., Any], title: str, result: Any, *, hidden: bool = False, **hints: bool) -> None:
        if not hidden:
            self.names.append(tool.__name__)


def _in_context(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The tool without `ctx`, its first parameter: the framework would work out at every call what is to be there."""
    signature, hints = inspect.signature(tool), get_type_hints(tool, include_extras=True)
    _, *others = (each.replace(annotation=hints[name]) for name, each in signature.parameters.items())

    @functools.wraps(tool)
    async def called(**given: Any) -> Any:
        return await tool(get_context(), **given)

    del called.__wrapped__  # or its parameters are looked up there
    called.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in others} | {"return": hints["return"]}
    return called


class _Plain(FunctionTool):
    """Without the framework's own note in every listing: nobody reads it."""

    def to_mcp_tool(self, **overrides: Any) -> MCPTool:
        return super().to_mcp_tool(**{"_meta": None, **overrides})
