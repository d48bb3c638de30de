"""A request's body is read before anything else sees it: whole, in time, not too long, and JSON that is sound."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import anyio
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from pydantic_core import from_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.frontends.mcp.lines import too_long

_TOGETHER = 16  # times the longest body: what all that are being read may hold
_LONG = 64 * 2**20  # bytes of the longest body, where there is no limit
_LINGER = 1.0  # seconds
_PASSED = 64 * 2**20  # bytes that are read of a refused body, and thrown away
_HUGE = re.compile(rb"\d[eE]\+?\d{3}|\d{300}")  # a number with this in it may be none a float can say


class BadBody(Exception):
    """A body that is not to be answered by anything below; the message says why."""


def check_json(body: bytes | bytearray) -> None:
    """Raises BadBody for what is not UTF-8 or not JSON, for lone surrogates, for NaN and numbers past all floats, and
    for more than 200 levels."""
    try:
        found = from_json(bytes(body), allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise BadBody(f"The request is not JSON, or nested too deeply: {error}. Nothing was done.") from None
    if _HUGE.search(body) and not _finite(found):
        raise BadBody("The request holds a number that is too large for any use. Nothing was done.")


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_finite, value.values()))
        case list():
            return all(map(_finite, value))
    return True


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp, *, path: str, most_bytes: int, timeout: float) -> None:
        """`path` is where JSON is spoken; `most_bytes` 0 is no limit; `timeout` is in seconds."""
        self._app = app
        self._path = path
        self._most = most_bytes
        self._timeout = timeout
        self._reading = 0  # bytes of bodies that are not whole yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body = bytearray()
        try:
            refused = await self._read(scope, receive, body)
        finally:
            self._reading -= len(body)
        if refused is None:
            return  # the client left
        whole = not refused
        if not refused and scope["path"] == self._path and scope["method"] == "POST":
            try:
                check_json(body)
            except BadBody as error:
                refused = 400, PARSE_ERROR, str(error)
        if refused:
            if not whole:
                await _let_pass(scope, receive)
            await _refuse(send, *refused)
        else:
            await self._app(scope, _replay(bytes(body), receive), send)

    async def _read(self, scope: Scope, receive: Receive, body: bytearray) -> tuple[int, int, str] | tuple[()] | None:
        """Fill `body`; why it is refused, or nothing; None where the client left."""
        if self._most and _declared(scope) > self._most:
            return 413, INVALID_REQUEST, too_long(self._most)
        with anyio.move_on_after(self._timeout):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                piece = message.get("body", b"")
                body += piece
                self._reading += len(piece)
                if self._most and len(body) > self._most:
                    return 413, INVALID_REQUEST, too_long(self._most)
                if not message.get("more_body", False):
                    return ()
                if self._reading > _TOGETHER * (self._most or _LONG):
                    return 429, INVALID_REQUEST, "Too many large requests at once. Nothing was done. Call again in 1 s."
        return (
            408,
            INVALID_REQUEST,
            f"The request was not sent within {self._timeout:g} s (setting limits.request_timeout_seconds). "
            "Nothing was done.",
        )


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one piece; after it what still comes, which is the end of the connection."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


async def _let_pass(scope: Scope, receive: Receive) -> None:
    """What is still on its way of a refused body, for a moment: a client that is cut off while it sends does not hear
    why."""
    if any(name == b"expect" for name, _ in scope["headers"]):
        return  # it waits to be told to go on
    passed, more = 0, True
    with anyio.move_on_after(_LINGER):
        while more and passed < _PASSED:
            message = await receive()
            passed += len(message.get("body", b""))
            more = message["type"] == "http.request" and bool(message.get("more_body", False))


async def _refuse(send: Send, status: int, code: int, why: str) -> None:
    answer = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    if status != 400:  # the rest of the body is not waited for
        headers += [(b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
