"""Connections that cannot hold the server up: so many at once, each with a deadline for what it sends and reads."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-type: text/plain\r\n"
    b"content-length: %d\r\n\r\n%b"
)
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_LOGS = ("uvicorn.error", "fastmcp.server.server")
_HOSTILE = (
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
    "No supported WebSocket library",
    "Invalid arguments for tool",
)


def bounded(most: int, timeout: float) -> type[H11Protocol]:
    """A protocol for uvicorn: at most `most` connections, 0 without limit; seconds for a request's head, and until a
    client that stopped reading is cut off. A request's body is the guard's to wait for."""

    class Bounded(_Timed):
        _most = most
        _timeout = timeout

    return Bounded


class _Timed(H11Protocol):
    _most: int
    _timeout: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: asyncio.TimerHandle | None = None  # a request's head is awaited
        self._stalled: asyncio.TimerHandle | None = None  # the client does not read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if self._most and len(self.connections) > self._most:
            why = b"%d connections are open, the most there may be (setting limits.max_connections)." % self._most
            transport.write(_FULL % (len(why), why))
            transport.close()
            return
        self._mind()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head = _cancelled(self._head)
        self._stalled = _cancelled(self._stalled)
        super().connection_lost(exc)

    def _mind(self) -> None:
        """The head of a request has to come in time, from its first byte on or from the beginning."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._head = _cancelled(self._head)
        elif self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(self._timeout, self._late)

    def _late(self) -> None:
        self.transport.write(_LATE)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self._stalled or self.loop.call_later(self._timeout, self.transport.abort)

    def resume_writing(self) -> None:
        self._stalled = _cancelled(self._stalled)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # garbage after a request that is being answered
            self.transport.close()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def be_quiet() -> None:
    """What strangers send is not worth a line each: a flood would fill the log. They are told what was wrong."""
    for name in _LOGS:
        logging.getLogger(name).addFilter(lambda record: not str(record.msg).startswith(_HOSTILE))
