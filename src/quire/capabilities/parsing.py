"""What a backend lists and answers, as the core's data: bounded and checked, since it may be hostile."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from quire.core.capabilities.model import Offered, Result, Tool
from quire.core.errors import OperationFailed
from quire.wire.messages import is_shallow

MOST_TOOLS = 2_000
_ABOUT = 2_000  # characters
_DESCRIPTION = 10_000  # characters
_NAME = 200  # characters
_SCHEMA = 256 * 2**10  # characters of JSON
_ALL = 6 * 2**20  # characters, of descriptions and schemas together: they go to each kernel in one frame
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_DEEP = 40  # a schema's levels; the wire takes few more


def tools(listed: Iterable[Any]) -> tuple[Tool, ...]:
    """Those that can be called: a name that is text and printable, the first of each name."""
    found: dict[str, Tool] = {}
    left = _ALL
    for one in listed:
        if len(found) == MOST_TOOLS:
            break
        name = one.get("name") if isinstance(one, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= _NAME or not name.isprintable() or name in found:
            continue
        description = one.get("description")
        if not isinstance(description, str):
            description = one.get("title") if isinstance(one.get("title"), str) else ""
        tool = Tool(
            name=name,
            description=description[: min(_DESCRIPTION, left)],
            input=_schema(one.get("inputSchema"), left) or {},
            output=_schema(one.get("outputSchema"), left),
            hints=_hints(one.get("annotations")),
        )
        left = max(0, left - len(tool.description) - _size(tool.input) - _size(tool.output))
        found[name] = tool
    return tuple(found.values())


def _hints(given: Any) -> dict[str, bool]:
    return {name: given[name] for name in _HINTS if type(given.get(name)) is bool} if isinstance(given, dict) else {}


def _schema(given: Any, left: int) -> dict[str, Any] | None:
    """Where it is one and fits; else none, which takes any arguments."""
    if not isinstance(given, dict) or not is_shallow(given, _DEEP):
        return None
    return given if _size(given) <= min(_SCHEMA, left) else None


def _size(schema: dict[str, Any] | None) -> int:
    return len(json.dumps(schema)) if schema else 0


def offered(listed: Iterable[Any], *, about: Any, server: str, resources: bool, prompts: bool) -> Offered:
    return Offered(
        tools=tools(listed),
        about=about[:_ABOUT] if isinstance(about, str) else "",
        server=server[:_NAME],
        resources=resources,
        prompts=prompts,
    )


def result(said: dict[str, Any]) -> Result:
    """Raises OperationFailed where it is none, or where it asks for input instead."""
    if said.get("resultType") == "input_required":
        raise OperationFailed(
            "The tool wants to ask a person something before it goes on, which cannot be done from here."
        )
    return Result(
        content=blocks(said, "content"), structured=said.get("structuredContent"), is_error=said.get("isError") is True
    )


def blocks(said: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The list under this key, without what is empty in each; raises Failed where it is none."""
    given = said.get(key)
    if given is None and key == "content" and "structuredContent" in said:
        return []
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise OperationFailed(
            f"The answer is not one of MCP's: its {key} is no list of objects. The server is at fault."
        )
    return [{name: value for name, value in one.items() if value is not None} for one in given]
