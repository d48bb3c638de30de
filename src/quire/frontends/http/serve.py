"""Serve the MCP endpoint over HTTP on this machine's own address, with Host and Origin checked."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.errors import Failed, Refused

PATH = "/mcp"
_GRACE = 3  # seconds open requests have when the server ends


async def serve(
    server: FastMCP[Any],
    *,
    host: str,
    port: int,
    log_level: str,
    listening: Callable[[str], None],
    ending: Callable[[], None],
) -> None:
    """Until a signal ends it. `listening` is called with the address once connections are taken, `ending` when a
    signal has come."""
    check_loopback(host)
    with _bind(host, port) as sock:
        address = _url(host, sock.getsockname()[1])
        _add_health(server)
        app = server.http_app(path=PATH, host_origin_protection=True, allowed_hosts=[host])
        config = uvicorn.Config(app, log_level=log_level, lifespan="on", timeout_graceful_shutdown=_GRACE, ws="none")
        running = _Server(config, ending)
        listening(address)
        try:
            await running.serve(sockets=[sock])
        except asyncio.CancelledError:
            logging.getLogger("uvicorn.error").disabled = True  # it takes being told to end for a fault
            raise


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)


def check_loopback(host: str) -> None:
    """Without authentication only this machine may reach the server."""
    try:
        fine = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        fine = False
    if not fine:
        raise Refused(
            f"host {host!r} is not this machine alone, and the server has no authentication: whoever reaches it "
            "can run code. Use 127.0.0.1, and a tunnel to reach it from elsewhere."
        )


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
        raise Failed(f"Port {port} of {host} cannot be taken: {error.strerror}. Choose another with --port.") from error
    return sock


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def _add_health(server: FastMCP[Any]) -> None:
    @server.custom_route("/healthz", methods=["GET"])
    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})
