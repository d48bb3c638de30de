"""Limits of HTTP connections: how many are open, and how long a client may take to send and to read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-type: text/plain\r\n"
    b"content-length: %d\r\n\r\n%b"
)
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_NOISE = (  # log messages about requests that the client sent wrong
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
    "No supported WebSocket library",
)


def limited_protocol(max_connections: int, timeout: float) -> type[H11Protocol]:
    """A protocol for uvicorn with at most `max_connections`, 0 for no limit. `timeout` is in seconds: for the head of a
    request, and until a client that stopped reading is disconnected. BodyLimitMiddleware waits for the body."""

    class Limited(_LimitedProtocol):
        _max_connections = max_connections
        _timeout = timeout

    return Limited


class _LimitedProtocol(H11Protocol):
    _max_connections: int
    _timeout: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: asyncio.TimerHandle | None = None  # runs while a request's head is awaited
        self._stalled: asyncio.TimerHandle | None = None  # runs while the client does not read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own type
        super().connection_made(transport)
        if self._max_connections and len(self.connections) > self._max_connections:
            why = (
                b"%d connections are open, the most there may be (setting limits.max_connections)."
                % self._max_connections
            )
            transport.write(_TOO_MANY % (len(why), why))
            transport.close()
            return
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head = _cancelled(self._head)
        self._stalled = _cancelled(self._stalled)
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        """Run the timer while the head of a request is awaited."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._head = _cancelled(self._head)
        elif self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(self._timeout, self._time_out)

    def _time_out(self) -> None:
        self.transport.write(_TIMED_OUT)
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
        except h11.LocalProtocolError:  # invalid bytes after a request that is being answered
            self.transport.close()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def mute_invalid_requests() -> None:
    """Do not log invalid requests: a flood would fill the log, and the answer tells the client what was wrong."""
    logging.getLogger("uvicorn.error").addFilter(lambda record: not str(record.msg).startswith(_NOISE))
