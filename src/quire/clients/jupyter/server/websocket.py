"""Websockets to a Jupyter server, with timeouts and readable error messages."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from urllib.parse import quote, urlencode

from quire.clients.jupyter.ports import Missing, Unreachable
from quire.clients.jupyter.server.http_client import HttpClient, shorten

MAX_MESSAGE_BYTES = 1024 * 1024 * 1024  # Jupyter's own limit
PING_INTERVAL_S = 20.0  # also the time that the server has to answer a ping


class ConnectionLost(Exception):
    """The connection was closed or broke. `code` is the websocket's close code."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class WebSocket:
    """One task may receive; any task may send."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: socket.socket | None = connection.transport.get_extra_info("socket")
        if self._socket is not None and self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._acknowledge()

    @property
    def subprotocol(self) -> str:
        return self._connection.subprotocol or ""

    async def send(self, message: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message)
        except ConnectionClosed as error:
            raise connection_lost(error) from None

    async def receive(self) -> bytes | str:
        from websockets.exceptions import ConnectionClosed

        try:
            message: bytes | str = await self._connection.recv()
        except ConnectionClosed as error:
            raise connection_lost(error) from None
        self._acknowledge()
        return message

    def _acknowledge(self) -> None:
        """Acknowledge received packets immediately. Linux resets TCP_QUICKACK, so it is set after every message; with
        delayed acknowledgements the server waits before it sends the next packet."""
        quick_ack = getattr(socket, "TCP_QUICKACK", None)
        if quick_ack is not None and self._socket is not None:
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, quick_ack, 1)
            except OSError:
                self._socket = None  # closed

    async def close(self) -> None:
        await self._connection.close()


async def open_websocket(
    http: HttpClient,
    path: str,
    query: dict[str, str],
    *,
    subprotocols: tuple[str, ...] = (),
    missing: str = "",
    timeout: float | None = None,
) -> WebSocket:
    """Raises Missing on a 404 and Unreachable on any other failure."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus, WebSocketException

    url = "ws" + http.url.removeprefix("http") + quote(path, safe="/:@") + "?" + urlencode(query)
    timeout_s = timeout or http.timeout
    try:
        async with asyncio.timeout(timeout_s):
            return WebSocket(
                await connect(
                    url,
                    additional_headers=http.headers,
                    subprotocols=list(subprotocols) or None,  # type: ignore[arg-type]  # a NewType of str
                    max_size=MAX_MESSAGE_BYTES,
                    max_queue=None,
                    compression=None,
                    open_timeout=None,
                    close_timeout=1.0,
                    ping_interval=PING_INTERVAL_S,
                    ping_timeout=PING_INTERVAL_S,
                )
            )
    except TimeoutError:
        raise Unreachable(http.timeout_message(timeout_s)) from None
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 404 and missing:
            raise Missing(missing) from None
        if status in (301, 302, 303, 307, 308, 401, 403):
            raise Unreachable(http.access_denied_message(status)) from None
        raise Unreachable(f"The Jupyter server at {http.url} refused a websocket ({status}).") from None
    except (OSError, WebSocketException, ValueError) as error:
        raise Unreachable(
            f"The Jupyter server at {http.url} cannot be reached by websocket ({shorten(str(error))}). "
            "Check that it runs, and that what stands between lets websockets through."
        ) from None


def connection_lost(error: Any) -> ConnectionLost:
    close_frame = error.rcvd
    return ConnectionLost(close_frame.code, close_frame.reason) if close_frame is not None else ConnectionLost()
