"""Serve MCP over HTTP. Without authentication only this machine may connect."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from starlette.applications import Starlette
from starlette.middleware import Middleware

from quire.core.errors import InvalidRequest, OperationFailed
from quire.frontends.http.body_limit import BodyLimitMiddleware
from quire.frontends.http.connections import limited_protocol, mute_invalid_requests
from quire.frontends.http.origins import LoopbackOriginGuard
from quire.frontends.http.sessions import limit_sessions

PATH = "/mcp"
_SHUTDOWN_S = 3  # for open requests to finish


@dataclass(frozen=True, kw_only=True)
class HttpAccess:
    """Who may connect, and the names of the server."""

    auth: AuthProvider | None = None  # None: every caller is the local user
    insecure: bool = False  # allow this for other machines, too
    hosts: tuple[str, ...] = ()  # host names besides its address


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """What a client may send, and how slowly."""

    request_bytes: int  # 0 is no limit
    connections: int  # 0 is no limit
    sessions: int  # of protocol versions before 2026-07-28; 0 is no limit
    timeout: float  # seconds to send a request, and to go on reading an answer

    def body_limit(self) -> Middleware:
        return Middleware(BodyLimitMiddleware, path=PATH, max_bytes=self.request_bytes, timeout=self.timeout)


async def serve(
    server: FastMCP[Any],
    *,
    host: str,
    port: int,
    access: HttpAccess,
    log_level: str,
    limits: HttpLimits,
    listening: Callable[[str], None],
) -> None:
    """Serve until cancelled, then let open requests finish. `listening` gets the address when clients can connect."""
    check_access(host, access)
    with _bind(host, port) as sock:
        address = _url(host, sock.getsockname()[1])
        # behind a TLS proxy the server does not know the scheme
        origins = [f"{scheme}://{name}" for name in access.hosts for scheme in ("http", "https")]
        app = asgi(
            server,
            limits,
            Middleware(LoopbackOriginGuard, allowed=origins),
            *_middleware(access),
            host_origin_protection=True,
            allowed_hosts=[host, *access.hosts],
            allowed_origins=origins,
        )
        config = uvicorn.Config(
            app,
            log_level=log_level,
            lifespan="on",
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ws="none",
            http=limited_protocol(limits.connections, limits.timeout),
        )
        mute_invalid_requests()  # after uvicorn.Config, which sets up logging
        listening(address)
        await _run_until_cancelled(_Server(config), sock)


async def _run_until_cancelled(server: uvicorn.Server, sock: socket.socket) -> None:
    """Ask uvicorn to exit: cancelling it would not close the requests and the lifespan of the app."""
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


def asgi(server: FastMCP[Any], limits: HttpLimits, *middleware: Middleware, **protection: Any) -> Starlette:
    """The app with MCP at PATH and the registered routes. The caller runs its lifespan."""
    app = server.http_app(path=PATH, middleware=[*middleware, limits.body_limit()], **protection)
    limit_sessions(app, limits.sessions)
    return app


class _Server(uvicorn.Server):
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Signals are handled by quire.shutdown."""
        return contextlib.nullcontext()


def check_access(host: str, access: HttpAccess) -> None:
    """Raises InvalidRequest if other machines can connect without authentication."""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if is_local or access.auth is not None:
        return
    if not access.insecure:
        raise InvalidRequest(
            f"Other machines can reach the host {host!r}, and without authentication everyone who reaches it can run "
            "code. Set auth.method, as in --auth-method tokens, or use 127.0.0.1 and a tunnel. "
            "--auth-insecure allows it."
        )
    print(
        f"Warning: everyone who reaches {host} can run code as this user, without authentication (--auth-insecure).",
        file=sys.stderr,
        flush=True,
    )


def _middleware(access: HttpAccess) -> list[Middleware]:
    if access.auth is None:
        return []
    from quire.frontends.http.auth import RevocationMiddleware

    return [Middleware(RevocationMiddleware, auth=access.auth)]


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it an answer takes 40 ms more
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise OperationFailed(
            f"Port {port} of {host} cannot be taken: {error.strerror}. Choose another with --server-port."
        ) from error
    return sock


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"
