"""Lines that are no messages: what is found in them, and what they are answered with."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from quire.frontends.mcp.lines import LineReader, LongLine, refusal

LIMIT = 1_000_000
LONG = "x" * LIMIT
NESTED = {"arguments": {"code": LONG, "id": 9, "method": "inner"}}


async def read(data: bytes) -> list[bytes | LongLine]:
    reader = asyncio.StreamReader(LIMIT)
    lines = LineReader(reader)
    reader.feed_data(data)
    reader.feed_eof()
    found = []
    while line := await lines.next():
        found.append(line)
    return found


@pytest.mark.parametrize("length", [LIMIT + 1, 2 * LIMIT, 5 * LIMIT + 7])
@pytest.mark.parametrize("end", [b"\n", b""])
async def test_a_long_line_is_passed_over_up_to_its_end(length: int, end: bytes) -> None:
    after = b"next\n" if end else b""
    first, long, *rest = await read(b"first\n" + b"a" * length + end + after)
    assert first == b"first\n"
    assert isinstance(long, LongLine) and long.head.startswith(b"aaa") and rest == ([after] if after else [])


REQUEST: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": NESTED}
ORDERS = {
    "as Python's SDK writes it": REQUEST,
    "as TypeScript's SDK writes it": {"method": "tools/call", "params": NESTED, "jsonrpc": "2.0", "id": 7},
    "id between": {"method": "tools/call", "id": 7, "params": NESTED, "jsonrpc": "2.0"},
    "method last": {"params": NESTED, "id": 7, "method": "tools/call"},
    "commas": {"method": "a,b", "params": NESTED, "jsonrpc": "2.0", "id": '7,"id":8'},
}


@pytest.mark.parametrize("message", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
async def test_the_id_of_a_long_request_is_found(message: dict[str, Any], separators: tuple[str, str]) -> None:
    [line] = await read(json.dumps(message, separators=separators).encode() + b"\n")
    found = refusal(line, LIMIT)
    assert found.error.id == message["id"] and not found.is_answer and not found.is_notification
    assert "1,000,000 bytes" in found.error.error.message


@pytest.mark.parametrize(
    "message",
    [{"jsonrpc": "2.0", "id": 3, "result": {"content": LONG}}, {"result": {"content": LONG}, "id": 3}],
)
async def test_a_long_answer_is_told_to_what_waits_for_it(message: dict[str, Any]) -> None:
    [line] = await read(json.dumps(message).encode() + b"\n")
    found = refusal(line, LIMIT)
    assert found.is_answer and found.error.id == 3


@pytest.mark.parametrize("part", [b"[", b"{", b'{"a":', b'"', b",", b"\xff"])
async def test_nothing_is_found_in_a_long_line_of_garbage(part: bytes) -> None:
    [long] = await read(part * 2 * LIMIT)
    assert refusal(long, LIMIT).error.id is None
