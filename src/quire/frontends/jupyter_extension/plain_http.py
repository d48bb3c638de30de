"""Tools over plain HTTP, without an MCP client. Each request becomes one message to the app's MCP endpoint."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

_PROTOCOL_VERSION = "2026-07-28"  # needs no session
_REQUEST_META = {
    "io.modelcontextprotocol/protocolVersion": _PROTOCOL_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "quire-http", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_USAGE = 'A call is {"name": "…", "arguments": {…}}. Nothing was done.'


def register(server: FastMCP[Any], path: str) -> None:
    """Add routes below `path`, the path of the MCP endpoint."""

    async def list_tools(request: Request) -> Response:
        return await _ask(request, path, "tools/list", {})

    async def call_tool(request: Request) -> Response:
        try:
            call = json.loads(await request.body())
            name, arguments = call.get("name") or call["tool_name"], call.get("arguments") or {}
            name.encode("ascii")
        except (ValueError, KeyError, AttributeError):
            return JSONResponse({"error": _USAGE}, 400)
        return await _ask(request, path, "tools/call", {"name": name, "arguments": arguments})

    server.custom_route(f"{path}/tools/list", methods=["GET"])(list_tools)
    server.custom_route(f"{path}/tools/call", methods=["POST"])(call_tool)


async def _ask(request: Request, path: str, method: str, params: dict[str, Any]) -> Response:
    """Send a request to the endpoint. Returns its result, or its error with a status."""
    request_body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _REQUEST_META}}
    ).encode()
    response = _AsgiClient(request_body, request)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(request_body)),
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _PROTOCOL_VERSION,
        "mcp-method": method,
        **({"mcp-name": params["name"]} if "name" in params else {}),
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {**request.scope, "method": "POST", "path": path, "raw_path": path.encode(), "headers": raw}
    await request.app(scope, response.receive, response.send)
    answer = response.message()
    if "result" in answer:
        return JSONResponse(answer["result"])
    status = response.status if response.status >= HTTPStatus.BAD_REQUEST else HTTPStatus.BAD_REQUEST
    return JSONResponse({"error": answer.get("error", {}).get("message", "There was no answer.")}, status)


class _AsgiClient:
    """ASGI client of the inner request. It ends with the outer one."""

    def __init__(self, request_body: bytes, request: Request) -> None:
        self._request_body: bytes | None = request_body
        self._request = request
        self._body = bytearray()
        self._streamed = False
        self.status = 500

    async def receive(self) -> Message:
        if self._request_body is None:
            return await self._request.receive()
        body, self._request_body = self._request_body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._streamed = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
        else:
            self._body += message.get("body", b"")

    def message(self) -> dict[str, Any]:
        """The JSON-RPC response. In a stream it is the last event, after progress."""
        text = self._body.decode()
        if self._streamed:
            text = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")][-1]
        parsed: dict[str, Any] = json.loads(text)
        return parsed
