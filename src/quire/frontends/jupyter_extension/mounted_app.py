"""The HTTP frontend's app as a Jupyter server has it: who may come in is the server's to say."""

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
    """An app that runs, and the seconds until a client that stopped reading is cut off."""

    app: ASGIApp
    timeout: float


@asynccontextmanager
async def mount(server: FastMCP[Any], app: App, limits: HttpLimits) -> AsyncIterator[MountedApp]:
    server.custom_route(f"{PATH}/healthz", methods=["GET"])(Probes(app).healthz)
    plain_http.register(server, PATH)
    running = asgi(server, limits, host_origin_protection=False)
    async with running.router.lifespan_context(running):
        yield MountedApp(app=running, timeout=limits.timeout)
