"""Tools by plain HTTP, without a client of MCP: each request is one message to the app's own MCP endpoint."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

_ERA = "2026-07-28"  # which needs no session
_META = {
    "io.modelcontextprotocol/protocolVersion": _ERA,
    "io.modelcontextprotocol/clientInfo": {"name": "quire-http", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_WANTED = 'A call is {"name": "…", "arguments": {…}}. Nothing was done.'


def register(server: FastMCP[Any], path: str) -> None:
    """Below `path`, which is the MCP endpoint's."""

    async def listed(request: Request) -> Response:
        return await _ask(request, path, "tools/list", {})

    async def called(request: Request) -> Response:
        try:
            given = json.loads(await request.body())
            name, arguments = given.get("name") or given["tool_name"], given.get("arguments") or {}
            name.encode("ascii")
        except (ValueError, KeyError, AttributeError):
            return JSONResponse({"error": _WANTED}, 400)
        return await _ask(request, path, "tools/call", {"name": name, "arguments": arguments})

    server.custom_route(f"{path}/tools/list", methods=["GET"])(listed)
    server.custom_route(f"{path}/tools/call", methods=["POST"])(called)


async def _ask(request: Request, path: str, method: str, params: dict[str, Any]) -> Response:
    """What the endpoint answers: a result as it is, an error with its status."""
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}).encode()
    answer = _Answer(asked, request)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(asked)),
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _ERA,
        "mcp-method": method,
        **({"mcp-name": params["name"]} if "name" in params else {}),
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {**request.scope, "method": "POST", "path": path, "raw_path": path.encode(), "headers": raw}
    await request.app(scope, answer.receive, answer.send)
    said = answer.message()
    if "result" in said:
        return JSONResponse(said["result"])
    status = answer.status if answer.status >= HTTPStatus.BAD_REQUEST else HTTPStatus.BAD_REQUEST
    return JSONResponse({"error": said.get("error", {}).get("message", "There was no answer.")}, status)


class _Answer:
    """The other end of a request that comes from here; ends with the one it is made for."""

    def __init__(self, asked: bytes, request: Request) -> None:
        self._asked: bytes | None = asked
        self._request = request
        self._body = bytearray()
        self._streamed = False
        self.status = 500

    async def receive(self) -> Message:
        if self._asked is None:
            return await self._request.receive()
        body, self._asked = self._asked, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._streamed = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
        else:
            self._body += message.get("body", b"")

    def message(self) -> dict[str, Any]:
        """The JSON-RPC answer; in a stream it is the last event, after those of progress."""
        text = self._body.decode()
        if self._streamed:
            text = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")][-1]
        found: dict[str, Any] = json.loads(text)
        return found
