"""Refuse requests of web pages that other programs on this machine serve."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class LoopbackOriginGuard:
    """fastmcp accepts every `Origin` on a loopback address, with any port. Here it must be the address that the request
    is sent to, or an origin that the operator named."""

    def __init__(self, app: ASGIApp, *, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = {origin.lower() for origin in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(Headers(scope=scope)):
            answer = PlainTextResponse(
                "This page's origin may not call Quire (setting server.allowed_hosts). Nothing was done.",
                status_code=403,
            )
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        origin = headers.get("origin", "").lower()
        if not origin or origin in self._allowed:
            return True
        parts = urlsplit(origin)
        return parts.netloc == headers.get("host", "").lower() or not _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
