"""The health route that deployments of jupyter-mcp-server expect."""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.core.app import App
from quire.core.errors import QuireError
from quire.core.notebooks.access import LOCAL_CALLER
from quire.frontends.mcp import default_document

HEALTH = "/api/healthz"


def register(server: FastMCP[Any], app: App) -> None:
    async def health(request: Request) -> Response:
        """Whether the server runs and the first document has a kernel. It needs no token and names nothing."""
        return JSONResponse({"success": True, "status": "healthy", "kernel_status": await _kernel_status(app)})

    server.custom_route(HEALTH, methods=["GET"])(health)


async def _kernel_status(app: App) -> str:
    try:
        notebook = await default_document.find(app, LOCAL_CALLER)
        kernel = await app.jupyter.kernel_of(notebook) if notebook is not None else ""
    except QuireError:  # its Jupyter server does not answer
        return "error"
    return "alive" if kernel else "not_initialized"
