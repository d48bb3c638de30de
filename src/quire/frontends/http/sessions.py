"""Sessions of the older protocol era: at most `max_sessions`. The one idle longest is closed before one more is opened.

The SDK's own limit refuses new sessions until old ones time out, so one user could lock the others out. It stays as the
bound if every session is in use.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.frontends.mcp.fastmcp_internals import on_session_manager

_ANY_SIZE = 2**62


def limit_sessions(app: Starlette, max_sessions: int) -> None:
    """Keep to `max_sessions` once the app runs; 0 is no limit. Also lift the SDK's limit of 4 MiB for a request's body,
    which fastmcp cannot set: BodyLimitMiddleware has checked the body before."""

    def configure(manager: StreamableHTTPSessionManager) -> None:
        manager.asgi_app.max_body_size = _ANY_SIZE
        manager.max_sessions = max_sessions or None
        if max_sessions:
            limited = SessionLimit(manager.asgi_app, max_sessions, manager.session_idle_timeout)
            manager.asgi_app = limited  # type: ignore[assignment]

    on_session_manager(app, configure)


@dataclass
class _Session:
    opening: Scope  # the request that opened it
    owner: object
    used_at: float
    requests: int = 0  # under way, an open stream of events included


class SessionLimit:
    """ASGI middleware around the SDK's endpoint. It sees sessions by their ids and closes one as a client does."""

    def __init__(self, app: ASGIApp, most: int, idle_timeout: float | None) -> None:
        self._app = app
        self._most = most
        self._idle_timeout = idle_timeout  # after which the SDK closes a session itself
        self._sessions: dict[str, _Session] = {}  # by id
        self._opening = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        version, id_ = headers.get(MCP_PROTOCOL_VERSION_HEADER), headers.get(MCP_SESSION_ID_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._app(scope, receive, send)  # the newer era has no sessions
        elif id_ is None:
            await self._open(scope, receive, send)
        elif id_ in self._sessions:
            await self._use(id_, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        opened: list[_Session] = []

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                id_ = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                if id_ is not None:
                    opened.append(_Session(scope, _owner(scope), time.monotonic(), requests=1))
                    self._sessions[id_] = opened[0]
                    self._opening -= 1
            await send(message)

        self._opening += 1
        try:
            await self._make_room()
            await self._app(scope, receive, watch)
        finally:
            if opened:
                opened[0].requests -= 1
                opened[0].used_at = time.monotonic()
            else:
                self._opening -= 1

    async def _use(self, id_: str, scope: Scope, receive: Receive, send: Send) -> None:
        session = self._sessions[id_]
        session.requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            session.requests -= 1
            session.used_at = time.monotonic()
        if scope["method"] == "DELETE" and session.owner == _owner(scope):
            self._sessions.pop(id_, None)

    async def _make_room(self) -> None:
        """Close the session idle longest, of the user who has the most; none if all are in use."""
        idle = {id_: each for id_, each in self._sessions.items() if not each.requests}
        if self._idle_timeout is not None:
            for id_ in [id_ for id_, each in idle.items() if time.monotonic() - each.used_at > self._idle_timeout]:
                del self._sessions[id_], idle[id_]
        if idle and len(self._sessions) + self._opening > self._most:
            many = Counter(each.owner for each in self._sessions.values())
            await self._close(min(idle, key=lambda id_: (-many[idle[id_].owner], idle[id_].used_at)))

    async def _close(self, id_: str) -> None:
        opening = self._sessions.pop(id_).opening
        headers = [*opening["headers"], (MCP_SESSION_ID_HEADER.encode(), id_.encode())]
        with anyio.CancelScope(shield=True):
            await self._app({**opening, "method": "DELETE", "headers": headers}, _nothing, _ignore)


def _owner(scope: Scope) -> object:
    """Who the SDK says a session belongs to."""
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _ignore(message: Message) -> None:
    pass
