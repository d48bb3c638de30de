"""Read the body of a request before the app does: in time, within a limit, and as valid JSON."""

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

_TOTAL_FACTOR = 16  # all bodies being read may hold this many times the longest one
_DEFAULT_MAX_BYTES = 64 * 2**20  # of the longest body, if there is no limit
_DRAIN_S = 1.0
_MAX_DRAINED_BYTES = 64 * 2**20  # of a refused body
_HUGE = re.compile(rb"\d[eE]\+?\d{3}|\d{300}")  # may be part of a number over the range of a float


class BadBody(Exception):
    """The body is refused; the message says why."""


def check_json(body: bytes | bytearray) -> None:
    """Raises BadBody for text that is not UTF-8 or not JSON, lone surrogates, NaN, numbers over the range of a float,
    and more than 200 levels."""
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
    def __init__(self, app: ASGIApp, *, path: str, max_bytes: int, timeout: float) -> None:
        """Bodies to `path` must be JSON. `max_bytes` 0 is no limit; `timeout` is in seconds."""
        self._app = app
        self._path = path
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._reading = 0  # bytes of bodies that are not complete

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
            return  # the client disconnected
        whole = not refused
        if not refused and scope["path"] == self._path and scope["method"] == "POST":
            try:
                check_json(body)
            except BadBody as error:
                refused = 400, PARSE_ERROR, str(error)
        if refused:
            if not whole:
                await _drain(scope, receive)
            await _refuse(send, *refused)
        else:
            await self._app(scope, _replay(bytes(body), receive), send)

    async def _read(self, scope: Scope, receive: Receive, body: bytearray) -> tuple[int, int, str] | tuple[()] | None:
        """Fill `body`. Returns why it is refused, or (), or None if the client disconnected."""
        if self._max_bytes and _declared(scope) > self._max_bytes:
            return 413, INVALID_REQUEST, too_long(self._max_bytes)
        with anyio.move_on_after(self._timeout):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                piece = message.get("body", b"")
                body += piece
                self._reading += len(piece)
                if self._max_bytes and len(body) > self._max_bytes:
                    return 413, INVALID_REQUEST, too_long(self._max_bytes)
                if not message.get("more_body", False):
                    return ()
                if self._reading > _TOTAL_FACTOR * (self._max_bytes or _DEFAULT_MAX_BYTES):
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
    """Receive the body in one message, then what the connection sends."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


async def _drain(scope: Scope, receive: Receive) -> None:
    """Read on for a moment: a client that is disconnected while it sends does not read the answer."""
    if any(name == b"expect" for name, _ in scope["headers"]):
        return  # it waits for a 100 Continue
    drained, more = 0, True
    with anyio.move_on_after(_DRAIN_S):
        while more and drained < _MAX_DRAINED_BYTES:
            message = await receive()
            drained += len(message.get("body", b""))
            more = message["type"] == "http.request" and bool(message.get("more_body", False))


async def _refuse(send: Send, status: int, code: int, why: str) -> None:
    answer = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    if status != 400:  # the rest of the body is not read
        headers += [(b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
