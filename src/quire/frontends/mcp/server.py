"""The MCP server: tool sets, resources, prompts and notices over one App."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import NotFoundError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp_types import CallToolRequestParams, Icon
from pydantic import ValidationError as PydanticValidationError

from quire.core.app import App
from quire.core.errors import InvalidRequest
from quire.frontends.mcp import prompts, resources
from quire.frontends.mcp.desk import Desk
from quire.frontends.mcp.exposed import Exposed
from quire.frontends.mcp.guidance import Guidance, unknown_tool
from quire.frontends.mcp.notices import Notices
from quire.frontends.mcp.rates import Paced
from quire.frontends.mcp.recorded import Recording, current
from quire.frontends.mcp.toolsets import (
    NameList,
    Shelf,
    capabilities,
    files,
    jupyter,
    notebook,
    repl,
    sandbox,
    timeline,
    users,
)

_SETS = {
    "notebook": notebook.register,
    "repl": repl.register,
    "capabilities": capabilities.register,
    "timeline": timeline.register,
    "files": files.register,
    "sandbox": sandbox.register,
    "users": users.register,
    "jupyter": jupyter.register,
}

_TYPES = ("int", "str", "float", "bool")  # what the validator names beside an argument that may be of several
_WORD = 2**63
_ICON = (  # without a space: clients that hold it against the schema want a URI
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%2024%2024'%3E%3Cpath%20d='M4%204c"
    "4-1%206%200%208%202%202-2%204-3%208-2v15c-4-1-6%200-8%202-2-2-4-3-8-2z'%20fill='none'%20stroke='%23555'%20stroke-"
    "width='2'/%3E%3C/svg%3E"
)


def build(app: App, *, toolsets: tuple[str, ...], result_chars: int, version: str) -> FastMCP[Any]:
    """A server over a running App; whoever opened the App closes it after the server."""
    guidance = Guidance(toolsets)
    desk, recording = Desk(app, guidance, result_chars), Recording(app.calls)
    parameters: dict[str, list[str]] = {}  # of each tool
    server: FastMCP[Any] = FastMCP(
        "quire",
        instructions=guidance.instructions(),
        version=version,
        icons=[Icon(src=_ICON, mime_type="image/svg+xml")],
        lifespan=lambda server: lifespan(server),
        middleware=[Paced(app.rates), _PlainRefusals(parameters)],
    )
    recording.install(server)
    shelf = Shelf(server, parameters)
    for name in toolsets:
        _SETS[name](shelf, desk)
    lifespan = _lifespan(app, desk, recording, shelf, functools.partial(_unknown, desk, toolsets))
    resources.register(server, desk, files="files" in toolsets)
    resources.register_completions(server, desk)
    prompts.register(server)
    return server


def _lifespan(
    app: App, desk: Desk, recording: Recording, shelf: Shelf, unknown: Callable[[str, list[str]], str]
) -> Callable[[FastMCP[Any]], AbstractAsyncContextManager[dict[str, Any]]]:
    @asynccontextmanager
    async def lifespan(server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
        tools = await server.list_tools()  # the first listing imports lazily: better now than in a client's face
        recording.own = frozenset(tool.name for tool in (*tools, *shelf.hidden))
        desk.notices = Notices(server, app.sharing)
        exposed = Exposed(desk, desk.notices, tools, shelf.hidden, unknown)
        # over HTTP the SDK looks the schema up on every call, by listing all tools unless told another way
        server._mcp_server.get_tool_input_schema = exposed.schema
        server.add_middleware(exposed)
        async with desk.notices.relaying(app.feed):
            stop = app.relay.listen(exposed.heard)
            try:
                yield {}
            finally:
                stop()
                server.middleware.remove(exposed)

    return lifespan


def _unknown(desk: Desk, toolsets: tuple[str, ...], name: str, offered: list[str]) -> str:
    """What is said of a tool that is not there: it may be in a tool set that is not offered."""
    elsewhere: dict[str, list[str]] = {}
    for each in (each for each in _SETS if each not in toolsets):
        listed = NameList()
        _SETS[each](listed, desk)
        for tool in (tool for tool in listed.names if tool not in offered):
            elsewhere.setdefault(tool, []).append(each)
    return unknown_tool(name, offered, elsewhere)


class _PlainRefusals(Middleware):
    """Arguments that do not fit are refused in a sentence, not in a validator's report."""

    def __init__(self, parameters: Mapping[str, list[str]]) -> None:
        self._parameters = parameters

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if isinstance(context.message, CallToolRequestParams):  # of all messages the one that must not cost
            return await self.on_call_tool(context, call_next)
        return await super().__call__(context, call_next)

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            _check_numbers(context.message)
            return await call_next(context)
        except NotFoundError:
            current().outcome = "refused"
            raise
        except InvalidRequest as error:
            current().failed(error)
            return ToolResult(content=str(error), is_error=True)
        except ValidationError as error:
            current().outcome = "refused"
            name = context.message.name
            return ToolResult(content=_sentence(name, error, self._parameters), is_error=True)


def _check_numbers(call: CallToolRequestParams) -> None:
    """Integers that no machine word holds mean nothing here, and no database takes them."""
    for name, value in (call.arguments or {}).items():
        if isinstance(value, int) and not -_WORD <= value < _WORD:
            raise InvalidRequest(f"{call.name} was not called, nothing has changed: {name} is too large a number.")


def _sentence(tool: str, error: ValidationError, parameters: Mapping[str, list[str]]) -> str:
    cause = error.__cause__
    if not isinstance(cause, PydanticValidationError):
        return f"{tool} was not called: {error}"
    wrong: dict[str, list[str]] = {}
    takes = dict[str, None]()  # sentences, each once
    for each in cause.errors():
        path = [str(part) for part in each["loc"] if part not in _TYPES]
        name = ".".join(path) or "arguments"
        match each["type"]:
            case "missing_argument" | "missing":
                wrong[f"{name} is missing"] = []
            case "unexpected_keyword_argument" | "extra_forbidden":
                wrong[f"there is no argument {name}"] = []
                place = ".".join((tool, *path[:-1]))
                there = ", ".join(parameters.get(place, ()))
                if place in parameters:
                    takes[f"{'.'.join(path[:-1]) or 'It'} takes {there or 'no arguments'}."] = None
            case _:
                said = f"{each['msg'][0].lower()}{each['msg'][1:]}"
                wrong.setdefault(f"{name}: ", []).append(said)
    said = "; ".join(name + " or ".join(dict.fromkeys(words)) for name, words in wrong.items())
    return " ".join([f"{tool} was not called, nothing has changed: {said}.", *takes])
