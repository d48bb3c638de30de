"""Characters of `tools/list` over stdio against what a model's context should give away; counts, not ratios."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mcp_types import Tool

from bench.servers import quire

READ = 12_000  # characters a model reads: names, descriptions, input schemas
WIRE = 24_000  # characters of everything, output schemas and hints too


def read_chars(tools: Iterable[Tool]) -> int:
    return sum(len(each.name) + len(each.description or "") + len(compact(each.input_schema)) for each in tools)


def wire_chars(tools: Iterable[Tool]) -> int:
    return len(compact([each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in tools]))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def main() -> list[tuple[str, float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with quire(Path(folder)) as client:
            tools = await client.list_tools()
    return [
        (f"characters of {len(tools)} names, descriptions and input schemas", read_chars(tools), READ),
        (f"characters of {len(tools)} tools on the wire", wire_chars(tools), WIRE),
    ]
