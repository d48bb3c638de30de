"""MCP over streamable HTTP: the SDK's transport, which records failures for error messages."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from quire.capabilities import failure_messages
from quire.capabilities.line_protocol import MAX_LINE_BYTES
from quire.core.capabilities.model import address
from quire.core.errors import ConnectionLost, OperationFailed
from quire.core.limits.network_rules import is_internal

UNREACHABLE = "Quire could not reach the server."
_CONNECTION_LOST = (UNREACHABLE, "Connection closed", "SSE stream ended", "SSE stream failed", "Session terminated")
_JSON = {"content-type": "application/json"}
_MAX_REFUSAL_BYTES = 64 * 2**10  # of an error response
_CONNECT_SECONDS = 30.0  # to connect and send; reading has the timeout of the call

# Failures are reported to the caller, and logs of the libraries may contain secrets.
for _name in ("mcp.client.streamable_http", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass
class HttpFailure:
    """The last failure of a connection."""

    status: int = 0  # HTTP status of an error response
    why: str = ""  # why the connection failed
    kind: str = ""  # content type of the last response


@contextlib.asynccontextmanager
async def dispatcher(
    url: str, headers: dict[str, str], trouble: HttpFailure, *, public_only: bool = False
) -> AsyncIterator[Dispatcher[Any]]:
    """`public_only` refuses addresses of private networks. Raises OperationFailed if `url` is not an HTTP URL."""
    check_request(url, headers)
    client = httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **headers},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        transport=_FailureRecordingTransport(trouble, public_only=public_only),
        trust_env=False,  # no proxy, no .netrc
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_LINE_BYTES) as (read, write),
    ):
        yield JSONRPCDispatcher(read, write)


def check_request(url: str, headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if not name.isascii() or not name.isprintable() or not value.isascii() or not value.isprintable():
            raise OperationFailed(f"The header {name!r} cannot be sent: names and values are ASCII text in one line.")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise OperationFailed(
            f"{address(url)!r} is not the address of an MCP server: give one that begins with http:// or https://."
        )


def is_lost(code: int, message: str) -> bool:
    """Whether the error comes from the transport because the connection ended, not from the server."""
    return message.startswith(_CONNECTION_LOST) and (code == CONNECTION_CLOSED or message == "Session terminated")


def failure(what: str, error: BaseException, trouble: HttpFailure) -> str:
    """Why a server could not be connected to or was lost, as a sentence."""
    if isinstance(error, ConnectionLost) or (isinstance(error, MCPError) and error.message == UNREACHABLE):
        return failure_messages.unreachable(what, trouble.why or str(error))
    if isinstance(error, MCPError | OperationFailed) and (
        isinstance(error, OperationFailed) or trouble.status or error.code
    ):
        return failure_messages.http_refusal(what, trouble.status, trouble.kind, str(error))
    return failure_messages.not_mcp(what, str(error))


class _FailureRecordingTransport(httpx2.AsyncBaseTransport):
    """Turns the failure of a request into a JSON-RPC error.

    Otherwise the SDK would end the connection with all calls if one request fails, without the HTTP status.
    """

    def __init__(self, trouble: HttpFailure, *, public_only: bool) -> None:
        self._public_only = public_only
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False, limits=limits)
        self._trouble = trouble

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            if self._public_only:
                await _pin_address(request)
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            self._trouble.why = str(error) or type(error).__name__
            if request.method != "POST":
                raise
            return _error(request, 503, CONNECTION_CLOSED, UNREACHABLE)
        if request.method != "POST":
            return response
        kind = self._trouble.kind = response.headers.get("content-type", "")
        self._trouble.status = response.status_code if response.status_code >= 300 else 0
        if response.status_code in (401, 403, 429) or response.status_code >= 500:
            return await _as_json_rpc_error(request, response)
        if kind.startswith("application/json"):
            response.stream = _LimitedStream(cast(httpx2.AsyncByteStream, response.stream))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _pin_address(request: httpx2.Request) -> None:
    """Connect to the checked address, since the name may resolve to another one next time."""
    url = request.url
    try:
        found = await anyio.getaddrinfo(url.host, url.port or 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpx2.ConnectError(str(error)) from error
    addresses = [str(place[0]) for *_, place in found]
    if not addresses or any(map(is_internal, addresses)):
        raise httpx2.ConnectError(
            "it is inside the server's own network; hosts the operator allows (setting capabilities.private_hosts) are "
            "reached"
        )
    request.extensions = {**request.extensions, "sni_hostname": url.host}
    request.url = url.copy_with(host=addresses[0])  # the Host header is unchanged


def _error(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, headers=_JSON, content=json.dumps(body).encode(), request=request)


async def _as_json_rpc_error(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """An error response as JSON-RPC error: that of the server, or its status in words."""
    response.stream = _LimitedStream(cast(httpx2.AsyncByteStream, response.stream), _MAX_REFUSAL_BYTES)
    try:
        body = await response.aread()
        refusal = json.loads(body)
        if isinstance(refusal, dict) and isinstance(refusal.get("error"), dict) and "jsonrpc" in refusal:
            return httpx2.Response(response.status_code, headers=_JSON, content=body, request=request)
    except (ValueError, RecursionError, httpx2.HTTPError, httpx2.StreamError):
        pass
    finally:
        await response.aclose()
    message = failure_messages.http_status(response.status_code)
    return _error(request, response.status_code, INTERNAL_ERROR, message)


class _ResponseTooLarge(httpx2.StreamError):
    """An error that the SDK relates to this response only."""


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int = MAX_LINE_BYTES) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._left -= len(part)
            if self._left < 0:
                raise _ResponseTooLarge(f"it is longer than {MAX_LINE_BYTES // 2**20} MB, the longest that is taken")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
