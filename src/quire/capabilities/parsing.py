"""Parse lists and answers of a backend, with limits, since it may be hostile."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from quire.core.capabilities.model import Offered, Result, Tool
from quire.core.errors import OperationFailed
from quire.wire.messages import is_shallow

MAX_TOOLS = 2_000
_MAX_ABOUT_CHARS = 2_000  # characters
_MAX_DESCRIPTION_CHARS = 10_000  # characters
_MAX_NAME_CHARS = 200  # characters
_MAX_SCHEMA_CHARS = 256 * 2**10  # characters of JSON
_MAX_TOTAL_CHARS = 6 * 2**20  # of all descriptions and schemas, sent to kernels in one frame
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_MAX_SCHEMA_DEPTH = 40  # levels; messages allow few more


def parse_tools(listed: Iterable[Any]) -> tuple[Tool, ...]:
    """The tools with a printable name; the first if several have the same."""
    found: dict[str, Tool] = {}
    left = _MAX_TOTAL_CHARS
    for tool in listed:
        if len(found) == MAX_TOOLS:
            break
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARS or not name.isprintable() or name in found:
            continue
        description = tool.get("description")
        if not isinstance(description, str):
            description = tool.get("title") if isinstance(tool.get("title"), str) else ""
        tool = Tool(
            name=name,
            description=description[: min(_MAX_DESCRIPTION_CHARS, left)],
            input=_schema(tool.get("inputSchema"), left) or {},
            output=_schema(tool.get("outputSchema"), left),
            hints=_hints(tool.get("annotations")),
        )
        left = max(0, left - len(tool.description) - _size(tool.input) - _size(tool.output))
        found[name] = tool
    return tuple(found.values())


def _hints(given: Any) -> dict[str, bool]:
    return {name: given[name] for name in _HINTS if type(given.get(name)) is bool} if isinstance(given, dict) else {}


def _schema(given: Any, left: int) -> dict[str, Any] | None:
    """The schema, or None if it is invalid or too large: then any arguments are accepted."""
    if not isinstance(given, dict) or not is_shallow(given, _MAX_SCHEMA_DEPTH):
        return None
    return given if _size(given) <= min(_MAX_SCHEMA_CHARS, left) else None


def _size(schema: dict[str, Any] | None) -> int:
    return len(json.dumps(schema)) if schema else 0


def parse_offered(listed: Iterable[Any], *, about: Any, server: str, resources: bool, prompts: bool) -> Offered:
    return Offered(
        tools=parse_tools(listed),
        about=about[:_MAX_ABOUT_CHARS] if isinstance(about, str) else "",
        server=server[:_MAX_NAME_CHARS],
        resources=resources,
        prompts=prompts,
    )


def parse_result(answer: dict[str, Any]) -> Result:
    """Raises OperationFailed if the answer is invalid or asks for input."""
    if answer.get("resultType") == "input_required":
        raise OperationFailed(
            "The tool wants to ask a person something before it goes on, which cannot be done from here."
        )
    is_error = answer.get("isError") is True
    return Result(
        content=parse_blocks(answer, "content"), structured=answer.get("structuredContent"), is_error=is_error
    )


def parse_blocks(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of objects under this key, without null values. Raises OperationFailed."""
    blocks_ = answer.get(key)
    if blocks_ is None and key == "content" and "structuredContent" in answer:
        return []
    if not isinstance(blocks_, list) or not all(isinstance(block, dict) for block in blocks_):
        raise OperationFailed(
            f"The answer is not one of MCP's: its {key} is no list of objects. The server is at fault."
        )
    return [{name: value for name, value in block.items() if value is not None} for block in blocks_]
