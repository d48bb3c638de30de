"""Passes one request from tornado to an ASGI app. Bodies are streamed both ways, with backpressure."""

from __future__ import annotations

import asyncio
import logging
from http.client import responses
from typing import Any

from starlette.types import ASGIApp, Message, Scope
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

log = logging.getLogger(__name__)
_MAX_WAITING_PIECES = 16  # of a request's body, 64 KiB each
_DISCONNECT: Message = {"type": "http.disconnect"}


class AsgiExchange:
    """One request and its response. Tornado adds the body; `run` returns after the response."""

    def __init__(self, request: RequestHandler, timeout: float) -> None:
        """`timeout`: seconds until a client that does not read is disconnected."""
        self._request = request
        self._timeout = timeout
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING_PIECES)  # None ends the body
        self._ended = asyncio.Event()  # answered, or the client disconnected
        self._body_complete = False  # the app has read the whole body
        self._started = self._answered = False

    # Called by tornado

    async def put_body(self, piece: bytes | None) -> None:
        """Add a piece of the body, or its end. Waits until there is room for it."""
        if not self._pieces.full():
            self._pieces.put_nowait(piece)
            return
        put = asyncio.ensure_future(self._pieces.put(piece))
        await self._wait_first(put)
        put.cancel()

    def client_left(self) -> None:
        self._ended.set()

    # Called by the app

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            log.exception("a request to %s failed", scope["path"])
        finally:
            self._finish()

    async def _receive(self) -> Message:
        if not self._body_complete:
            if not self._pieces.empty():
                return self._request_message(self._pieces.get_nowait())
            get = asyncio.ensure_future(self._pieces.get())
            if await self._wait_first(get):
                return self._request_message(get.result())
            get.cancel()
        await self._ended.wait()
        return _DISCONNECT

    def _request_message(self, piece: bytes | None) -> Message:
        self._body_complete = piece is None
        return {"type": "http.request", "body": piece or b"", "more_body": not self._body_complete}

    async def _wait_first(self, future: asyncio.Future[Any]) -> bool:
        """Wait for `future` or the end of the exchange. Returns whether the future is done."""
        if future.done():
            return True
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((future, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        return future.done()

    async def _send(self, message: Message) -> None:
        if self._ended.is_set():
            return  # the client is gone
        if message["type"] == "http.response.start":
            self._start_response(message)
            if not any(name.lower() == b"content-length" for name, _ in message["headers"]):
                await self._flush()  # the first piece may take long
        elif message["type"] == "http.response.body":
            await self._write_body(message.get("body", b""), more=message.get("more_body", False))

    def _start_response(self, message: Message) -> None:
        self._started = True
        request, status = self._request, message["status"]
        request.set_status(status, responses.get(status, "Unknown"))
        request.clear_header("Content-Type")
        for name, value in message["headers"]:
            request.add_header(name.decode("latin-1"), value.decode("latin-1"))
        stream = getattr(request.request.connection, "stream", None)
        if stream is not None and not stream.closed():
            stream.set_nodelay(True)  # tornado leaves it off: 40 ms a piece otherwise

    async def _write_body(self, body: bytes, *, more: bool) -> None:
        if body and self._request.request.method != "HEAD":
            self._request.write(body)
        if more:
            if body:
                await self._flush()
            return
        self._answered = True
        content_type = self._request._headers.get("Content-Type", "application/json")
        written = self._request.finish(set_content_type=content_type)  # type: ignore[call-arg]  # jupyter_server's parameter
        self._ended.set()
        await self._with_timeout(written)

    async def _flush(self) -> None:
        await self._with_timeout(self._request.flush())

    async def _with_timeout(self, written: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await written
        except StreamClosedError:
            self._ended.set()
        except TimeoutError:
            self._close_connection()

    def _finish(self) -> None:
        """The app has returned. Close the connection if the response is incomplete, so that the client notices."""
        if not self._ended.is_set() and not self._answered:
            if self._started:
                self._close_connection()
            else:
                self._request.send_error(500)
        self._ended.set()

    def _close_connection(self) -> None:
        self._ended.set()
        stream = getattr(self._request.request.connection, "stream", None)
        if stream is not None:
            stream.close()
