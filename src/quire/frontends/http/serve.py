"""Serve the MCP endpoint over HTTP, with Host and Origin checked; to this machine alone where nobody is asked who they
are."""

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
from quire.frontends.http.connections import be_quiet, bounded
from quire.frontends.http.origins import LoopbackOriginGuard
from quire.frontends.http.sessions import limit_sessions

PATH = "/mcp"
_GRACE = 3  # seconds open requests have when the server ends


@dataclass(frozen=True, kw_only=True)
class HttpAccess:
    """Who is let in, and by which names the server goes."""

    auth: AuthProvider | None = None  # None: whoever reaches it is the local user
    insecure: bool = False  # so too from other machines
    hosts: tuple[str, ...] = ()  # names beside its address


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """What a client may send, and how slowly."""

    request_bytes: int  # of one request; 0 no limit
    connections: int  # open at once; 0 no limit
    sessions: int  # of the older era; 0 no limit
    timeout: float  # seconds to send a request, and to read an answer on

    def body_limit(self) -> Middleware:
        return Middleware(BodyLimitMiddleware, path=PATH, most_bytes=self.request_bytes, timeout=self.timeout)


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
    """Serve until cancelled; open requests then have a moment to finish. `listening` is called with the address once
    connections are accepted."""
    check_access(host, access)
    with _bind(host, port) as sock:
        address = _url(host, sock.getsockname()[1])
        # behind a proxy that speaks TLS the server does not see under which scheme it is called
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
            timeout_graceful_shutdown=_GRACE,
            ws="none",
            http=bounded(limits.connections, limits.timeout),
        )
        be_quiet()  # after the configuration, which sets it up
        listening(address)
        await _run_until_cancelled(_Server(config), sock)


async def _run_until_cancelled(server: uvicorn.Server, sock: socket.socket) -> None:
    """Cancelling it would leave requests and the app's lifespan half closed, so uvicorn is asked to exit instead."""
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


def asgi(server: FastMCP[Any], limits: HttpLimits, *middleware: Middleware, **protection: Any) -> Starlette:
    """The app: MCP at PATH, beside it what was registered. Whoever runs it runs its lifespan."""
    app = server.http_app(path=PATH, middleware=[*middleware, limits.body_limit()], **protection)
    limit_sessions(app, limits.sessions)
    return app


class _Server(uvicorn.Server):
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Signals are handled by quire.shutdown."""
        return contextlib.nullcontext()


def check_access(host: str, access: HttpAccess) -> None:
    """Where nobody is asked who they are, only this machine may reach the server."""
    try:
        alone = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = False
    if alone or access.auth is not None:
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
    # the protocol is named since asyncio turns Nagle off only where it is: 40 ms an answer otherwise
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
