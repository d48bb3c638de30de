"""The HTTP frontend's app for a Jupyter server, which authenticates its users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastmcp import FastMCP
from starlette.types import ASGIApp

from quire.core.app import App
from quire.frontends.http.probes import Probes
from quire.frontends.http.serve import PATH, HttpLimits, asgi
from quire.frontends.jupyter_extension import plain_http


@dataclass(frozen=True, kw_only=True)
class MountedApp:
    """A running app. `timeout`: seconds until a client that does not read is disconnected."""

    app: ASGIApp
    timeout: float


@asynccontextmanager
async def mount(server: FastMCP[Any], app: App, limits: HttpLimits) -> AsyncIterator[MountedApp]:
    server.custom_route(f"{PATH}/healthz", methods=["GET"])(Probes(app).healthz)
    plain_http.register(server, PATH)
    running = asgi(server, limits, host_origin_protection=False)
    async with running.router.lifespan_context(running):
        yield MountedApp(app=running, timeout=limits.timeout)
