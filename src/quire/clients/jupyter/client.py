"""A Jupyter server as it is reached: from outside by its url, or from inside, as its extension."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quire.clients.jupyter.ports import Documents, JupyterError, Kernels


@dataclass(frozen=True, kw_only=True)
class Jupyter:
    """`check` raises Unreachable where the server is not there; it says what it is. `close` lets go of everything;
    kernels live on."""

    name: str  # its url
    documents: Documents
    kernels: Kernels
    check: Callable[[], Awaitable[dict[str, Any]]]
    close: Callable[[], Awaitable[None]]


def remote(url: str, token: str = "", *, timeout: float = 10.0, agent: str = "Quire") -> Jupyter:
    """Nothing is sent yet. Raises JupyterError for what is no url."""
    try:
        from quire.clients.jupyter.documents.remote_documents import RemoteDocuments
        from quire.clients.jupyter.kernels.remote_kernels import RemoteKernels
        from quire.clients.jupyter.server.http_client import Server
    except ImportError as error:
        raise JupyterError(f"{error.name} is not installed: pip install 'quire[jupyter]'") from None
    server = Server(url, token, timeout=timeout)
    kernels = RemoteKernels(server)
    documents = RemoteDocuments(server, kernels.specs, agent=agent)

    async def check() -> dict[str, Any]:
        status, version = await server.ask("GET", "api/status"), await server.ask("GET", "api")
        number = version.get("version", "") if isinstance(version, dict) else ""
        return {"url": server.url, "version": number, **(status if isinstance(status, dict) else {})}

    async def close() -> None:
        await documents.close()
        await kernels.close()
        await server.close()

    return Jupyter(name=server.url, documents=documents, kernels=kernels, check=check, close=close)


def inside(serverapp: Any, *, timeout: float = 10.0, agent: str = "Quire") -> Jupyter:
    """For an extension of this server: no HTTP to itself. Nothing is done yet."""
    from quire.clients.jupyter.documents.local_documents import InsideDocuments
    from quire.clients.jupyter.kernels.local_kernels import InsideKernels

    kernels = InsideKernels(serverapp)
    documents = InsideDocuments(serverapp, kernels.specs, agent=agent, timeout=timeout)

    async def check() -> dict[str, Any]:
        from jupyter_server import __version__

        return {"url": serverapp.connection_url, "version": __version__}

    async def close() -> None:
        await documents.close()
        await kernels.close()

    return Jupyter(name=serverapp.connection_url, documents=documents, kernels=kernels, check=check, close=close)
