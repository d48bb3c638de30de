"""Telling clients that a resource changed: `subscriptions/listen` in the newer era, `resources/subscribe` before."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from fastmcp import FastMCP
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent, ToolsListChanged
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)

from quire.core.feed import Change, Feed

log = logging.getLogger(__name__)
_SAY = 1.0  # seconds a notification may take to send
_SUBSCRIPTIONS = 10_000
_BACKLOG = 1_000  # notifications waiting to be sent; past it they are dropped, a client reads anew anyway


class Notices:
    """Who wants to know of which resource, and the sending; a bus for the SDK's listen handler."""

    def __init__(self, server: FastMCP[Any]) -> None:
        self._streams: dict[object, Callable[[ServerEvent], None]] = {}
        self._sessions: dict[str, dict[int, ServerSession]] = {}  # uri to the connections that asked for it
        self._seen: WeakSet[Connection] = WeakSet()
        self._telling: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Queue[tuple[str, int, ServerSession]] = asyncio.Queue(_BACKLOG)
        low = server._mcp_server  # fastmcp has no subscriptions of its own yet
        low.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(self))
        low.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        low.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    @asynccontextmanager
    async def relaying(self, feed: Feed) -> AsyncIterator[None]:
        """Turn the core's news into notifications for as long as the block lasts."""
        # a task of its own: the framework leaves its lifespan under another cancel scope than it came
        sending = asyncio.create_task(self._send())
        stop = feed.listen(self._on_change)
        try:
            yield
        finally:
            stop()
            sending.cancel()

    # The SDK's SubscriptionBus

    async def publish(self, event: ServerEvent) -> None:
        for deliver in list(self._streams.values()):
            deliver(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        key = object()
        self._streams[key] = listener

        def unsubscribe() -> None:
            self._streams.pop(key, None)

        return unsubscribe

    def seen(self, session: ServerSession) -> None:
        """A client is there: it is to hear when the list of tools changes."""
        self._seen.add(session._connection)

    def tools_changed(self) -> None:
        for deliver in list(self._streams.values()):
            deliver(ToolsListChanged())
        for connection in list(self._seen):
            if connection.has_standalone_channel:
                task = asyncio.get_running_loop().create_task(_tell(connection))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    def _on_change(self, change: Change) -> None:
        if not self._streams and not self._sessions:
            return
        for uri in addresses(change):
            for deliver in list(self._streams.values()):
                deliver(ResourceUpdated(uri=uri))
            for key, session in self._sessions.get(uri, {}).items():
                if not self._waiting.full():
                    self._waiting.put_nowait((uri, key, session))

    async def _send(self) -> None:
        while True:
            uri, key, session = await self._waiting.get()
            try:
                await asyncio.wait_for(session.send_resource_updated(uri), _SAY)
            except Exception as error:  # a client that left: forget it, go on with the others
                log.debug("a subscriber of %s is gone: %s", uri, error)
                self._forget(uri, key)

    async def _subscribe(self, ctx: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        if len(self._sessions) < _SUBSCRIPTIONS:
            self._sessions.setdefault(str(params.uri), {})[_connection(ctx.session)] = ctx.session
        return EmptyResult()

    async def _unsubscribe(self, ctx: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams) -> EmptyResult:
        self._forget(str(params.uri), _connection(ctx.session))
        return EmptyResult()

    def _forget(self, uri: str, key: int) -> None:
        sessions = self._sessions.get(uri, {})
        sessions.pop(key, None)
        if not sessions:
            self._sessions.pop(uri, None)


async def _tell(connection: Connection) -> None:
    with contextlib.suppress(Exception):  # a client that left
        await asyncio.wait_for(connection.send_tool_list_changed(), _SAY)


def _connection(session: ServerSession) -> int:
    # the SDK makes a session per request over one lasting connection
    return id(session._connection)


def addresses(change: Change) -> list[str]:
    """Every resource a change shows in. Pure."""
    name = quote(change.notebook.name, safe="")
    found = [f"notebook://{place}/{what}" for place in (name, "current") for what in ("cells", "info", "ipynb")]
    if change.cell is not None:
        for which in (change.cell, str(change.number)):
            found += [f"notebook://{name}/cell/{which}", f"notebook://cell/{which}"]
    return found
