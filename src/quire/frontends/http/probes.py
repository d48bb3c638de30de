"""Health, readiness and metrics for operators. They show nothing of users."""

from __future__ import annotations

import ipaddress
from typing import Any

import anyio
from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from quire.core.app import App
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.model import LOCAL
from quire.frontends.http import metrics
from quire.frontends.mcp.callers import caller_from_request

_CHECK_TIMEOUT_S = 5.0
_READY_CACHE_S = 1.0
_DISK_CACHE_S = 30.0
_NOT_YOURS = "Metrics are for the operator: bring an admin's token, or, without auth, ask from the server's machine.\n"


def register(server: FastMCP[Any], app: App) -> None:
    probes = Probes(app)
    for path, answer in (("/healthz", probes.healthz), ("/readyz", probes.readyz), ("/metrics", probes.metrics)):
        server.custom_route(path, methods=["GET"])(answer)


def may_see_metrics(request: Request) -> bool:
    """Admins may; without authentication, clients on this machine."""
    try:
        if request.app.state.fastmcp_auth is not None:
            return caller_from_request(request).is_trusted
        return request.client is None or ipaddress.ip_address(request.client.host).is_loopback
    except (InvalidRequest, ValueError):
        return False


class Probes:
    def __init__(self, app: App) -> None:
        self._app = app
        self._checking = anyio.Lock()
        self._checked_at = -_READY_CACHE_S
        self._problems: dict[str, str] = {}
        self._measured_at = -_DISK_CACHE_S
        self._store_bytes: dict[str, int] = {}

    async def healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """200 if a call could be answered now, else 503 with the reasons by part."""
        async with self._checking:
            if anyio.current_time() - self._checked_at >= _READY_CACHE_S:
                self._problems = await self._check()
                self._checked_at = anyio.current_time()
        if self._problems:
            return JSONResponse({"status": "not ready", "why": self._problems}, 503)
        return JSONResponse({"status": "ready"})

    async def _check(self) -> dict[str, str]:
        app, problems = self._app, dict[str, str]()
        if app.disk is not None and (why := await anyio.to_thread.run_sync(app.disk.write_error)):
            problems["store"] = why
        for part, check in (
            ("store", lambda: app.notebooks.list_notebooks(LOCAL)),
            ("runtime", app.kernels.runtimes.wait_ready),
        ):
            try:
                with anyio.fail_after(_CHECK_TIMEOUT_S):
                    await check()
            except TimeoutError:
                problems.setdefault(part, f"It did not answer within {_CHECK_TIMEOUT_S:g} s.")
            except OperationFailed as error:
                problems.setdefault(part, str(error))
        return problems

    async def metrics(self, request: Request) -> Response:
        if not may_see_metrics(request):
            return PlainTextResponse(_NOT_YOURS, 403)
        disk, now = self._app.disk, anyio.current_time()
        if disk is not None and now - self._measured_at >= _DISK_CACHE_S:
            self._measured_at = now
            self._store_bytes = await anyio.to_thread.run_sync(disk.used_bytes)
        return Response(metrics.text(self._app, self._store_bytes), media_type=metrics.MEDIA_TYPE)
