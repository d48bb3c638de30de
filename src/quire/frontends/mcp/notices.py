"""Telling clients that a resource changed: `subscriptions/listen` in the newer era, `resources/subscribe` before."""

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
_SAY = 1.0  # seconds a notification may take to send
_SUBSCRIPTIONS = 10_000  # of one principal: nobody takes another's
_LISTENING = 1_024  # streams of one principal
_STREAMS = 10_000  # of all
_BACKLOG = 1_000  # notifications waiting to be sent; past it they are dropped, a client reads anew anyway
_listener: ContextVar[Caller] = ContextVar("listener")  # who asks to listen


class Notices:
    """Who wants to know of which resource, and the sending; a bus for the SDK's listen handler. Nobody hears of a
    notebook that is neither theirs nor shared with them."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]] = {}
        self._sessions: dict[str, dict[int, tuple[Caller, ServerSession]]] = {}  # uri to connections that asked for it
        self._seen: WeakKeyDictionary[Connection, Principal] = WeakKeyDictionary()
        self._telling: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Queue[tuple[str, int, ServerSession] | Change] = asyncio.Queue(_BACKLOG)
        self._asked: Counter[Principal] = Counter()  # subscriptions of each
        self._listen = ListenHandler(self, max_subscriptions=_STREAMS)

    def register(self, server: FastMCP[Any]) -> None:
        """Answer the requests to subscribe. fastmcp has no subscriptions of its own yet."""
        low = low_level(server)
        low.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, self._listening)
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
        if sum(other.principal == caller.principal for other, _ in self._streams.values()) >= _LISTENING:
            raise MCPError(INTERNAL_ERROR, f"You listen {_LISTENING:,} times already. End one of them first.")
        token = _listener.set(caller)
        try:
            return await self._listen(ctx, params)
        finally:
            _listener.reset(token)

    def seen(self, session: ServerSession, caller: Caller) -> None:
        """A client is there: it is to hear when the list of its tools changes."""
        self._seen[connection_of(session)] = caller.principal

    def tools_changed(self, whose: Principal) -> None:
        for caller, deliver in list(self._streams.values()):
            if caller.principal == whose:
                deliver(ToolsListChanged())
        for connection, principal in list(self._seen.items()):
            if principal == whose and connection.has_standalone_channel:
                task = asyncio.get_running_loop().create_task(_tell(connection))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    def _on_change(self, change: Change) -> None:
        if not self._streams and not self._sessions:
            return
        owner = change.notebook.owner
        for uri in addresses(change):
            self._tell_all(uri, lambda caller: caller.principal == owner)
        listeners = [*self._streams.values(), *(each for asked in self._sessions.values() for each in asked.values())]
        if any(caller.principal != owner for caller, _ in listeners) and not self._waiting.full():
            self._waiting.put_nowait(change)  # who else may hear of it has to be looked up

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

        for uri in addresses(change, others=True):  # what is current is an admin's own, unless it is shared with them
            self._tell_all(uri, known if uri.startswith(_prefix(change)) else shared)

    async def _send(self) -> None:
        while True:
            match await self._waiting.get():
                case Change() as change:
                    try:
                        await self._tell_others(change)
                    except QuireError as error:
                        log.debug("who hears of %s could not be looked up: %s", change.notebook.id, error)
                case (uri, key, session):
                    try:
                        async with asyncio.timeout(_SAY):
                            await session.send_resource_updated(uri)
                    except Exception as error:  # a client that left: forget it, go on with the others
                        log.debug("a subscriber of %s is gone: %s", uri, error)
                        self._forget(uri, key)

    async def _subscribe(self, ctx: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        caller, key = caller_of(ctx), _connection_key(ctx.session)
        if self._asked[caller.principal] < _SUBSCRIPTIONS:
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


async def _tell(connection: Connection) -> None:
    with contextlib.suppress(Exception):  # a client that left
        async with asyncio.timeout(_SAY):
            await connection.send_tool_list_changed()


def _connection_key(session: ServerSession) -> int:
    # the SDK makes a session per request over one lasting connection
    return id(connection_of(session))


def addresses(change: Change, *, others: bool = False) -> list[str]:
    """Every resource a change shows in, by the names its owner has for them, or `others` have. Pure."""
    notebook = change.notebook
    name = quote(f"{notebook.owner}/{notebook.name}" if others else notebook.name, safe="")
    found = [f"notebook://{place}/{what}" for place in (name, "current") for what in ("cells", "info", "ipynb")]
    if change.cell is not None:
        for which in (change.cell, str(change.number)):
            found += [f"notebook://{name}/cell/{which}", f"notebook://cell/{which}"]
    return found


def _prefix(change: Change) -> str:
    return f"notebook://{quote(f'{change.notebook.owner}/{change.notebook.name}', safe='')}/"
