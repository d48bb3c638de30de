"""Notify clients of changed resources and tools.

They use `subscriptions/listen` from protocol 2026-07-28 on, and `resources/subscribe` before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from fastmcp import FastMCP
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from quire.core.errors import QuireError
from quire.core.model import Principal
from quire.core.notebooks.access import Caller
from quire.core.notebooks.sharing import Sharing
from quire.core.ops.change_bus import Change, Feed
from quire.frontends.mcp.callers import caller_of
from quire.frontends.mcp.fastmcp_internals import connection_of, low_level

log = logging.getLogger(__name__)
_SEND_TIMEOUT_S = 1.0
_MAX_SUBSCRIPTIONS = 10_000  # of one principal
_MAX_STREAMS_EACH = 1_024  # of one principal
_MAX_STREAMS = 10_000
_MAX_WAITING = 1_000  # notifications to send; more are dropped, since a client reads the resource again anyway
_listener: ContextVar[Caller] = ContextVar("listener")  # set for the SDK's call of `subscribe`


class Notices:
    """Subscriptions and the task that sends notifications; the SubscriptionBus of the SDK's ListenHandler.

    Clients are notified of notebooks that their user owns or that are shared with the user, and admins of all.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]] = {}
        self._sessions: dict[str, dict[int, tuple[Caller, ServerSession]]] = {}  # by uri and connection
        self._seen: WeakKeyDictionary[Connection, Principal] = WeakKeyDictionary()
        self._sending: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Queue[tuple[str, int, ServerSession] | Change] = asyncio.Queue(_MAX_WAITING)
        self._asked: Counter[Principal] = Counter()  # subscriptions of each
        self._listen = ListenHandler(self, max_subscriptions=_MAX_STREAMS)

    def register(self, server: FastMCP[Any]) -> None:
        """Answer the requests to subscribe. fastmcp has no subscriptions of its own yet."""
        low = low_level(server)
        low.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, self._listening)
        low.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        low.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    @asynccontextmanager
    async def relaying(self, feed: Feed) -> AsyncIterator[None]:
        """Turn changes that the core publishes into notifications until the block ends."""
        # not a task group: the framework may leave its lifespan in another cancel scope
        sending = asyncio.create_task(self._send())
        stop = feed.listen(self._on_change)
        try:
            yield
        finally:
            stop()
            sending.cancel()

    # The SDK's SubscriptionBus

    async def publish(self, event: ServerEvent) -> None:
        for _, deliver in list(self._streams.values()):
            deliver(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        key = object()
        self._streams[key] = (_listener.get(), listener)

        def unsubscribe() -> None:
            self._streams.pop(key, None)

        return unsubscribe

    async def _listening(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        caller = caller_of(ctx)
        if sum(other.principal == caller.principal for other, _ in self._streams.values()) >= _MAX_STREAMS_EACH:
            raise MCPError(INTERNAL_ERROR, f"You listen {_MAX_STREAMS_EACH:,} times already. End one of them first.")
        token = _listener.set(caller)
        try:
            return await self._listen(ctx, params)
        finally:
            _listener.reset(token)

    def seen(self, session: ServerSession, caller: Caller) -> None:
        """Notify this client when the list of its tools changes."""
        self._seen[connection_of(session)] = caller.principal

    def tools_changed(self, whose: Principal) -> None:
        for caller, deliver in list(self._streams.values()):
            if caller.principal == whose:
                deliver(ToolsListChanged())
        for connection, principal in list(self._seen.items()):
            if principal == whose and connection.has_standalone_channel:
                task = asyncio.get_running_loop().create_task(_send_tools_changed(connection))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    def _on_change(self, change: Change) -> None:
        if not self._streams and not self._sessions:
            return
        owner = change.notebook.owner
        for uri in addresses(change):
            self._tell_all(uri, lambda caller: caller.principal == owner)
        listeners = [*self._streams.values(), *(each for asked in self._sessions.values() for each in asked.values())]
        if any(caller.principal != owner for caller, _ in listeners) and not self._waiting.full():
            self._waiting.put_nowait(change)  # who else may see the notebook is looked up in the task

    def _tell_all(self, uri: str, may: Callable[[Caller], bool]) -> None:
        for caller, deliver in list(self._streams.values()):
            if may(caller):
                deliver(ResourceUpdated(uri=uri))
        for key, (caller, session) in self._sessions.get(uri, {}).items():
            if may(caller) and not self._waiting.full():
                self._waiting.put_nowait((uri, key, session))

    async def _tell_others(self, change: Change) -> None:
        owner, shares = change.notebook.owner, await self._sharing.list_shares(change.notebook)

        def shared(caller: Caller) -> bool:
            return caller.principal in shares

        def known(caller: Caller) -> bool:
            return caller.principal != owner and (caller.is_trusted or shared(caller))

        for uri in addresses(
            change, others=True
        ):  # `current` is the admin's own notebook, unless this one is shared with the admin
            self._tell_all(uri, known if uri.startswith(_prefix(change)) else shared)

    async def _send(self) -> None:
        while True:
            match await self._waiting.get():
                case Change() as change:
                    try:
                        await self._tell_others(change)
                    except QuireError as error:
                        log.debug("the shares of %s could not be read: %s", change.notebook.id, error)
                case (uri, key, session):
                    try:
                        async with asyncio.timeout(_SEND_TIMEOUT_S):
                            await session.send_resource_updated(uri)
                    except Exception as error:  # the client disconnected
                        log.debug("a subscriber of %s is gone: %s", uri, error)
                        self._forget(uri, key)

    async def _subscribe(self, ctx: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        caller, key = caller_of(ctx), _connection_key(ctx.session)
        if self._asked[caller.principal] < _MAX_SUBSCRIPTIONS:
            asked = self._sessions.setdefault(str(params.uri), {})
            self._asked[caller.principal] += key not in asked
            asked[key] = (caller, ctx.session)
        return EmptyResult()

    async def _unsubscribe(self, ctx: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams) -> EmptyResult:
        self._forget(str(params.uri), _connection_key(ctx.session))
        return EmptyResult()

    def _forget(self, uri: str, key: int) -> None:
        sessions = self._sessions.get(uri, {})
        if key in sessions:
            self._asked[sessions.pop(key)[0].principal] -= 1
        if not sessions:
            self._sessions.pop(uri, None)


async def _send_tools_changed(connection: Connection) -> None:
    with contextlib.suppress(Exception):  # the client disconnected
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await connection.send_tool_list_changed()


def _connection_key(session: ServerSession) -> int:
    # the SDK makes a session for each request of a connection
    return id(connection_of(session))


def addresses(change: Change, *, others: bool = False) -> list[str]:
    """The URIs of resources that show a change, as the owner names them, or as `others` do. Pure."""
    notebook = change.notebook
    name = quote(f"{notebook.owner}/{notebook.name}" if others else notebook.name, safe="")
    found = [f"notebook://{place}/{what}" for place in (name, "current") for what in ("cells", "info", "ipynb")]
    if change.cell is not None:
        for which in (change.cell, str(change.number)):
            found += [f"notebook://{name}/cell/{which}", f"notebook://cell/{which}"]
    return found


def _prefix(change: Change) -> str:
    return f"notebook://{quote(f'{change.notebook.owner}/{change.notebook.name}', safe='')}/"
