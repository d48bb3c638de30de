"""Creates a client of one Jupyter server: over HTTP by its URL, or inside the server as its extension."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quire.clients.jupyter.ports import Documents, JupyterError, Kernels

if TYPE_CHECKING:  # pycrdt is installed only where documents are shared
    from quire.clients.jupyter.documents.live_documents import LiveDocuments


@dataclass(frozen=True, kw_only=True)
class JupyterClient:
    """`check` returns what the server says about itself, or raises Unreachable. `close` closes documents and
    connections; kernels keep running."""

    name: str  # the server's URL
    documents: Documents
    kernels: Kernels
    check: Callable[[], Awaitable[dict[str, Any]]]
    close: Callable[[], Awaitable[None]]


def remote_client(url: str, token: str = "", *, timeout: float = 10.0, agent: str = "Quire") -> JupyterClient:
    """Sends nothing yet. Raises JupyterError if `url` is invalid."""
    try:
        from quire.clients.jupyter.documents.contents import RemoteContents
        from quire.clients.jupyter.documents.live_documents import LiveDocuments
        from quire.clients.jupyter.documents.server_documents import ServerDocuments
        from quire.clients.jupyter.kernels.remote_kernels import RemoteKernels
        from quire.clients.jupyter.rooms.remote_rooms import RemoteRooms
        from quire.clients.jupyter.server.http_client import HttpClient

        http = HttpClient(url, token, timeout=timeout)
    except ImportError as error:
        raise JupyterError(f"{error.name} is not installed: pip install 'quire[jupyter]'") from None
    kernels, rooms = RemoteKernels(http), RemoteRooms(http)
    shared = LiveDocuments(rooms, server_name=http.url, agent=agent, timeout=timeout)

    async def find_shared(path: str) -> LiveDocuments | None:
        return shared if await rooms.has_collaboration(path) else None

    async def check() -> dict[str, Any]:
        status, version = await http.request_json("GET", "api/status"), await http.request_json("GET", "api")
        number = version.get("version", "") if isinstance(version, dict) else ""
        return {"url": http.url, "version": number, **(status if isinstance(status, dict) else {})}

    async def close() -> None:
        await shared.close()
        await kernels.close()
        await http.close()

    documents = ServerDocuments(RemoteContents(http), kernels.list_specs, find_shared)
    return JupyterClient(name=http.url, documents=documents, kernels=kernels, check=check, close=close)


def local_client(serverapp: Any, *, timeout: float = 10.0, agent: str = "Quire") -> JupyterClient:
    """For an extension of `serverapp`: calls its managers instead of sending HTTP requests. Does nothing yet."""
    from quire.clients.jupyter.documents.local_contents import LocalContents
    from quire.clients.jupyter.documents.server_documents import ServerDocuments
    from quire.clients.jupyter.kernels.local_kernels import LocalKernels

    kernels = LocalKernels(serverapp)
    shared: LiveDocuments | None = None

    async def find_shared(path: str) -> LiveDocuments | None:
        """Looks for jupyter-collaboration when a document is opened: all extensions are loaded by then."""
        nonlocal shared
        collaboration = serverapp.extension_manager.extension_apps.get("jupyter_server_ydoc")
        if shared is None and collaboration:
            from quire.clients.jupyter.documents.live_documents import LiveDocuments
            from quire.clients.jupyter.rooms.local_rooms import LocalRooms

            rooms = LocalRooms(next(iter(collaboration)), lambda: serverapp.web_app.settings["file_id_manager"])
            shared = LiveDocuments(rooms, server_name="the Jupyter server", agent=agent, timeout=timeout)
        return shared

    async def check() -> dict[str, Any]:
        from jupyter_server import __version__

        return {"url": serverapp.connection_url, "version": __version__}

    async def close() -> None:
        if shared is not None:
            await shared.close()
        await kernels.close()

    documents = ServerDocuments(LocalContents(serverapp), kernels.list_specs, find_shared)
    name = serverapp.connection_url
    return JupyterClient(name=name, documents=documents, kernels=kernels, check=check, close=close)
