"""Vocabularies over the one core: each file is a tool set, and all act on the same notebooks."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_type_hints

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.tools import FunctionTool, ToolResult
from mcp_types import Tool as MCPTool
from mcp_types import ToolAnnotations
from pydantic import PrivateAttr

from quire.frontends.mcp.desk import refusals
from quire.frontends.mcp.results import schema, short


class Shelf:
    """Where a tool set puts its tools; of two tools of one name the first stays."""

    def __init__(self, server: FastMCP[Any], parameters: dict[str, list[str]]) -> None:
        """Into `parameters` goes what each tool takes."""
        self._server = server
        self._parameters = parameters
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
        other_names: Mapping[str, str] | None = None,
    ) -> None:
        """`reads`: changes nothing. `destroys`: something is gone after. `repeats`: twice is once. `runs`: any code.
        `hidden`: for those who know it; it is in no list. `other_names`: of parameters, accepted and in no list."""
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
        self._parameters |= _parts(tool.__name__, offered.parameters)
        given = {name: getattr(offered, name) for name in FunctionTool.model_fields}
        made = _Plain(**{**given, "parameters": short(offered.parameters)})
        made.accept(other_names or {})
        if hidden:
            self.hidden.append(made)
        else:
            self._server.add_tool(made)

    def put_prompt(self, prompt: Callable[..., Any], title: str) -> None:
        self._server.prompt(title=title)(prompt)


def _parts(tool: str, schema: dict[str, Any]) -> dict[str, list[str]]:
    """What a tool takes, and under its name and an argument's what an object given as that argument may have."""
    found = {tool: list(schema.get("properties", ()))}
    for name, given in schema.get("properties", {}).items():
        for each in (given, *given.get("anyOf", ())):
            meant = schema.get("$defs", {}).get(str(each.get("$ref", "")).rpartition("/")[2], each)
            if "properties" in meant:
                found[f"{tool}.{name}"] = list(meant["properties"])
    return found


class NameList(Shelf):
    """What a tool set puts here is noted by its name, and offered to nobody."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def put(self, tool: Callable[..., Any], title: str, result: Any, *, hidden: bool = False, **hints: Any) -> None:
        if not hidden:
            self.names.append(tool.__name__)

    def put_prompt(self, prompt: Callable[..., Any], title: str) -> None:
        """Prompts are not tools."""


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

    _other_names: dict[str, str] = PrivateAttr(default_factory=dict)

    def accept(self, other_names: Mapping[str, str]) -> None:
        """Further names of parameters, each with the name it stands for."""
        self._other_names = dict(other_names)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        if self._other_names.keys() & arguments.keys():
            arguments = {self._other_names.get(name, name): value for name, value in arguments.items()}
        return await super().run(arguments)

    def to_mcp_tool(self, **overrides: Any) -> MCPTool:
        return super().to_mcp_tool(**{"_meta": None, **overrides})
