"""Websockets to a Jupyter server: opened within a deadline, acknowledged at once, their failures told as sentences."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from urllib.parse import quote, urlencode

from quire.clients.jupyter.ports import Missing, Unreachable
from quire.clients.jupyter.server.http_client import Server, reason

LARGEST = 1024 * 1024 * 1024  # bytes of one message; Jupyter's own limit
PING = 20.0  # seconds between pings; without an answer for as long, the connection is given up


class Cut(Exception):
    """The connection is gone; `code` is the websocket's."""

    def __init__(self, code: int = 1006, why: str = "") -> None:
        super().__init__(f"{code} {why}")
        self.code = code
        self.why = why


class Socket:
    """One websocket. One task receives; any may send."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._raw: socket.socket | None = connection.transport.get_extra_info("socket")
        if self._raw is not None and self._raw.family != socket.AF_UNIX:
            self._raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._acknowledge()

    @property
    def subprotocol(self) -> str:
        return self._connection.subprotocol or ""

    async def send(self, message: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message)
        except ConnectionClosed as closed:
            raise cut(closed) from None

    async def receive(self) -> bytes | str:
        from websockets.exceptions import ConnectionClosed

        try:
            message: bytes | str = await self._connection.recv()
        except ConnectionClosed as closed:
            raise cut(closed) from None
        self._acknowledge()
        return message

    def _acknowledge(self) -> None:
        """At once, each time anew: Linux falls back to delaying, and the server waits before its next packet."""
        quickly = getattr(socket, "TCP_QUICKACK", None)
        if quickly is not None and self._raw is not None:
            try:
                self._raw.setsockopt(socket.IPPROTO_TCP, quickly, 1)
            except OSError:
                self._raw = None  # closed

    async def close(self) -> None:
        await self._connection.close()


async def open_socket(
    server: Server,
    path: str,
    query: dict[str, str],
    *,
    subprotocols: tuple[str, ...] = (),
    missing: str = "",
    timeout: float | None = None,
) -> Socket:
    """Raises Missing for a 404, Unreachable for everything else that fails."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus, WebSocketException

    url = "ws" + server.url.removeprefix("http") + quote(path, safe="/:@") + "?" + urlencode(query)
    wait = timeout or server.timeout
    try:
        async with asyncio.timeout(wait):
            return Socket(
                await connect(
                    url,
                    additional_headers=server.headers,
                    subprotocols=list(subprotocols) or None,  # type: ignore[arg-type]  # a NewType of str
                    max_size=LARGEST,
                    max_queue=None,
                    compression=None,
                    open_timeout=None,
                    close_timeout=1.0,
                    ping_interval=PING,
                    ping_timeout=PING,
                )
            )
    except TimeoutError:
        raise Unreachable(server.silent(wait)) from None
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 404 and missing:
            raise Missing(missing) from None
        if status in (301, 302, 303, 307, 308, 401, 403):
            raise Unreachable(server.locked_out(status)) from None
        raise Unreachable(f"The Jupyter server at {server.url} refused a websocket ({status}).") from None
    except (OSError, WebSocketException, ValueError) as error:
        raise Unreachable(
            f"The Jupyter server at {server.url} cannot be reached by websocket ({reason(str(error))}). "
            "Check that it runs, and that what stands between lets websockets through."
        ) from None


def cut(closed: Any) -> Cut:
    received = closed.rcvd
    return Cut(received.code, received.reason) if received is not None else Cut()
