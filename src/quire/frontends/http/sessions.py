"""Sessions of the older protocol era: so many at once. For one more the longest idle ends; its client begins anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette

_ANY_SIZE = 2**62


def bound(app: Starlette, most: int) -> None:
    """Once the app runs, have its session manager keep to `most`, 0 without limit; and take any body: the SDK refuses
    those over 4 MiB, fastmcp passes no other number on, and what comes here has passed the guard."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: Any) -> AsyncIterator[Any]:
        async with inner(running) as state:
            for route in app.routes:
                endpoint = getattr(route, "endpoint", None)
                endpoint = getattr(endpoint, "app", endpoint)  # below a check of tokens
                manager = getattr(endpoint, "session_manager", None)
                if isinstance(manager, StreamableHTTPSessionManager):
                    manager.asgi_app.max_body_size = _ANY_SIZE
                    _make_room(manager, most)
            yield state

    app.router.lifespan_context = lifespan


def _make_room(manager: StreamableHTTPSessionManager, most: int) -> None:
    admit = manager._admit_session  # there is no other place to stand in the way
    manager.max_sessions = most or None

    def admitted(requestor: Any) -> Any:
        if most and len(manager._server_instances) >= most:
            _end_one(manager)
        return admit(requestor)

    manager._admit_session = admitted  # type: ignore[method-assign]


def _end_one(manager: StreamableHTTPSessionManager) -> None:
    """The one that nobody used for longest, of the user who has the most; none where all are in use."""
    many = Counter(map(manager._session_owners.get, manager._server_instances))
    idle = [
        (-many[manager._session_owners.get(id_)], session.idle_scope.deadline, id_)
        for id_, session in manager._server_instances.items()
        if session.idle_scope is not None and not session._requests_in_flight
    ]
    if idle and manager._task_group is not None:
        id_ = min(idle)[2]
        manager._session_owners.pop(id_, None)
        manager._task_group.start_soon(manager._server_instances.pop(id_).terminate)
