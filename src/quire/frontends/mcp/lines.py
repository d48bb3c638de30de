"""Read JSON-RPC messages as lines within a limit, and answer lines that are not messages."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

_HEAD_BYTES = 1 << 16  # kept of the start of a line that is too long
_TAIL_BYTES = 1 << 12
_LAST_MEMBERS = 8  # JSON members searched at the end of such a line
_DECODER = json.JSONDecoder()
_UNREAD = object()


@dataclass(frozen=True)
class LongLine:
    """The start and the end of a line over the limit."""

    head: bytes
    tail: bytes


class LineReader:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        """The limit is the one of `reader`."""
        self._reader = reader

    async def next(self) -> bytes | LongLine:
        """The next line, or b"" at the end. Only the start and the end of a line over the limit are kept."""
        head, tail = b"", b""
        while True:
            try:
                rest = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                rest = error.partial
            except asyncio.LimitOverrunError as error:
                piece = await self._reader.readexactly(error.consumed)
                head = head or piece[:_HEAD_BYTES]
                tail = (tail + piece[-_TAIL_BYTES:])[-_TAIL_BYTES:]
                continue
            return LongLine(head, (tail + rest)[-_TAIL_BYTES:]) if head else rest


def too_long(max_bytes: int) -> str:
    return (
        f"The request has more than {max_bytes:,} bytes (setting limits.max_request_bytes). Nothing was done. Put data "
        "into a file of the workspace and read it from there."
    )


@dataclass(frozen=True)
class Refusal:
    """What becomes of a line that is no message: an error with the id of its request, or null where none was found."""

    error: JSONRPCError
    is_answer: bool  # it answers a request of the server: that request fails, and the client is told nothing
    is_notification: bool  # JSON-RPC has no answer to it


def refusal(line: bytes | LongLine, max_bytes: int) -> Refusal:
    if isinstance(line, LongLine):
        members = {**_first_members(line.head), **_last_members(line.tail)}
        code, why = INVALID_REQUEST, too_long(max_bytes)
    else:
        code, why, members = _problem(line)
    has_method = "method" in members
    id_ = members.get("id")
    known = id_ if isinstance(id_, str) or (isinstance(id_, int) and not isinstance(id_, bool)) else None
    return Refusal(
        error=JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=why)),
        is_answer=not has_method and ("result" in members or "error" in members),
        is_notification=str(members.get("method")).startswith("notifications/") and "id" not in members,
    )


def _problem(line: bytes) -> tuple[int, str, dict[str, Any]]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return PARSE_ERROR, f"The message is not JSON: {error}. Nothing was done.", {}
    why = "The message is no request, notification or answer of JSON-RPC 2.0. Nothing was done."
    return INVALID_REQUEST, why, found if isinstance(found, dict) else {}


def _first_members(head: bytes) -> dict[str, Any]:
    """Those of an object's beginning, up to the first that is cut off."""
    text = head.decode("utf-8", "replace")
    members: dict[str, Any] = {}
    at = _after_blanks(text, 0)
    try:
        while text[at] in "{,":
            name, at = _DECODER.raw_decode(text, _after_blanks(text, at + 1))
            members[str(name)] = _UNREAD
            members[str(name)], at = _DECODER.raw_decode(text, _after_blanks(text, text.index(":", at) + 1))
            at = _after_blanks(text, at)
    except (ValueError, IndexError, RecursionError):
        pass
    return members


def _last_members(tail: bytes) -> dict[str, Any]:
    """Those of an object's end, back to the first that is cut off."""
    text = tail.decode("utf-8", "replace")
    members: dict[str, Any] = {}
    at = len(text)
    for _ in range(_LAST_MEMBERS):
        at = text.rfind(",", 0, at)
        if at < 0:
            break
        try:
            found = json.loads(f"{{{text[at + 1 :]}")
        except (ValueError, RecursionError):  # this comma is inside a member
            continue
        members = found
    return members


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
