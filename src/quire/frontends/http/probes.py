"""What an operator's machines ask of the server: is it there, could it work, what has it done. Nothing of users'."""

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

_PATIENCE = 5.0  # seconds a part has to say that it is well
_FRESH = 1.0  # seconds a look counts for, however many ask
_SIZES = 30.0  # the same of how much the disk holds
_NOT_YOURS = "Metrics are for the operator: bring an admin's token, or, without auth, ask from the server's machine.\n"


def register(server: FastMCP[Any], app: App) -> None:
    probes = Probes(app)
    for path, answer in (("/healthz", probes.healthz), ("/readyz", probes.readyz), ("/metrics", probes.metrics)):
        server.custom_route(path, methods=["GET"])(answer)


def may_see_metrics(request: Request) -> bool:
    """An admin; where nobody is asked who they are, whoever is on this machine."""
    try:
        if request.app.state.fastmcp_auth is not None:
            return caller_from_request(request).is_trusted
        return request.client is None or ipaddress.ip_address(request.client.host).is_loopback
    except (InvalidRequest, ValueError):
        return False


class Probes:
    def __init__(self, app: App) -> None:
        self._app = app
        self._looking = anyio.Lock()
        self._looked = -_FRESH
        self._wrong: dict[str, str] = {}
        self._weighed = -_SIZES
        self._taken: dict[str, int] = {}

    async def healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """200 where a call could be answered now; else 503, and why not, by part."""
        async with self._looking:
            if anyio.current_time() - self._looked >= _FRESH:
                self._wrong = await self._look()
                self._looked = anyio.current_time()
        if self._wrong:
            return JSONResponse({"status": "not ready", "why": self._wrong}, 503)
        return JSONResponse({"status": "ready"})

    async def _look(self) -> dict[str, str]:
        app, wrong = self._app, dict[str, str]()
        if app.disk is not None and (why := await anyio.to_thread.run_sync(app.disk.trouble)):
            wrong["store"] = why
        for part, look in (
            ("store", lambda: app.notebooks.list_notebooks(LOCAL)),
            ("runtime", app.kernels.runtimes.wait_ready),
        ):
            try:
                with anyio.fail_after(_PATIENCE):
                    await look()
            except TimeoutError:
                wrong.setdefault(part, f"It did not answer within {_PATIENCE:g} s.")
            except OperationFailed as error:
                wrong.setdefault(part, str(error))
        return wrong

    async def metrics(self, request: Request) -> Response:
        if not may_see_metrics(request):
            return PlainTextResponse(_NOT_YOURS, 403)
        disk, now = self._app.disk, anyio.current_time()
        if disk is not None and now - self._weighed >= _SIZES:
            self._weighed = now
            self._taken = await anyio.to_thread.run_sync(disk.taken)
        return Response(metrics.text(self._app, self._taken), media_type=metrics.MEDIA_TYPE)
