"""The tools and prompts of a server, as tool sets add them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from fastmcp.tools import FunctionTool, Tool, ToolResult
from mcp_types import Tool as MCPTool
from mcp_types import ToolAnnotations
from pydantic import TypeAdapter, ValidationError

from quire.core.errors import InvalidRequest
from quire.frontends.mcp import argument_errors
from quire.frontends.mcp.results import schema, short
from quire.frontends.mcp.tool_context import ToolContext

ToolFunction = Callable[..., Awaitable[ToolResult]]  # takes a ToolContext, then the arguments


class ListedTool(Tool):
    """A tool as fastmcp lists it. Calls are dispatched by `pipeline`, never by fastmcp."""

    def to_mcp_tool(self, **overrides: Any) -> MCPTool:
        """Without fastmcp's own note in every listing, which clients do not read."""
        return super().to_mcp_tool(**{"_meta": None, **overrides})


@dataclass(frozen=True, kw_only=True)
class RegisteredTool:
    listed: ListedTool
    function: ToolFunction
    validator: TypeAdapter[Any]
    parameters: Mapping[str, list[str]]  # as `argument_errors.parameter_names` has them
    other_names: Mapping[str, str]  # of parameters: accepted and not listed

    @property
    def name(self) -> str:
        return self.listed.name

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises InvalidRequest if they do not fit."""
        argument_errors.check_numbers(self.name, arguments)
        if self.other_names.keys() & arguments.keys():
            arguments = {self.other_names.get(name, name): value for name, value in arguments.items()}
        try:
            checked: dict[str, Any] = self.validator.validate_python(arguments)
        except ValidationError as error:
            raise InvalidRequest(argument_errors.sentence(self.name, error, self.parameters)) from error
        return checked

    async def call(self, ctx: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return await self.function(ctx, **arguments)


@dataclass
class ToolRegistry:
    """Of two tools with one name the first stays."""

    tools: dict[str, RegisteredTool] = field(default_factory=dict)
    listed: dict[str, ListedTool] = field(default_factory=dict)  # not those that are answered but hidden
    prompts: list[tuple[Callable[..., Awaitable[Any]], str]] = field(default_factory=list)  # each with its title

    def add(
        self,
        function: ToolFunction,
        title: str,
        result: Any,
        *,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        open_world: bool = False,
        hidden: bool = False,
        other_names: Mapping[str, str] | None = None,
    ) -> None:
        """The four flags are MCP's annotations; `open_world` is for tools that run any code. `hidden`: answered, and
        not listed. `other_names`: of parameters, accepted and not listed."""
        name = function.__name__
        if name in self.tools:
            return
        collect: Any = without_context(function, lambda **given: given)
        derived = FunctionTool.from_function(collect, output_schema=None)
        listed = ListedTool(
            name=name,
            title=title,
            description=derived.description,
            parameters=short(derived.parameters),
            output_schema=schema(result) if result is not None else None,
            annotations=ToolAnnotations(
                read_only_hint=read_only,
                destructive_hint=destructive or open_world,
                idempotent_hint=idempotent or read_only,
                open_world_hint=open_world,
            ),
        )
        self.tools[name] = RegisteredTool(
            listed=listed,
            function=function,
            validator=TypeAdapter(collect),
            parameters=argument_errors.parameter_names(name, derived.parameters),
            other_names=other_names or {},
        )
        if not hidden:
            self.listed[name] = listed

    def add_prompt(self, prompt: Callable[..., Awaitable[Any]], title: str) -> None:
        self.prompts.append((prompt, title))


@dataclass
class NameRegistry(ToolRegistry):
    """Collects the names of tools only, which costs less."""

    names: list[str] = field(default_factory=list)

    def add(self, function: ToolFunction, title: str, result: Any, *, hidden: bool = False, **flags: Any) -> None:
        if not hidden:
            self.names.append(function.__name__)


def without_context(function: Callable[..., Any], called: Callable[..., Any]) -> Callable[..., Any]:
    """`called` with the name, the docstring and the parameters of `function`, except the first: its context."""
    signature, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    _, *others = (each.replace(annotation=hints[name]) for name, each in signature.parameters.items())
    called.__name__, called.__qualname__, called.__doc__ = function.__name__, function.__qualname__, function.__doc__
    called.__module__ = function.__module__
    called.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in others} | {"return": hints["return"]}
    return called
