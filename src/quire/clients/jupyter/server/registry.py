"""Registry of Jupyter servers by name. A server is contacted when it is first needed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from quire.clients.jupyter.client import JupyterClient
from quire.clients.jupyter.documents.open_documents import OpenDocuments
from quire.clients.jupyter.kernels.models import find_spec
from quire.clients.jupyter.kernels.owned_kernels import OwnedKernels
from quire.clients.jupyter.ports import Document, JupyterError, Missing
from quire.clients.jupyter.server.address import Address

_CLOSE_TIMEOUT_S = 10.0

Clients = Mapping[str, JupyterClient]
"""Clients by server name."""


class Server:
    """A registered server with its open documents and its kernels, which may be on another server."""

    def __init__(
        self,
        name: str,
        client: JupyterClient,
        *,
        url: str = "",
        kernel_client: JupyterClient | None = None,
    ) -> None:
        """`url` is shown to people; "" for the server that Quire runs in."""
        self.name = name
        self.url = url
        self._client = client
        self._kernel_client = kernel_client or client
        self.documents = client.documents
        self.kernels = self._kernel_client.kernels
        self.open_documents = OpenDocuments(name, self.documents)
        self.owned_kernels = OwnedKernels(self.kernels)

    async def check(self) -> dict[str, Any]:
        """What the server says about itself. Raises Unreachable."""
        if self._kernel_client is not self._client:
            await self._kernel_client.check()
        return await self._client.check()

    async def create_document(self, path: str, kernel: str = "") -> Document:
        """Create a document with a kernelspec of the server that has the kernels."""
        spec = await find_spec(self.kernels.list_specs, kernel) if kernel else None
        return await self.open_documents.create(path, spec)

    async def close(self) -> None:
        """Close the open documents, shut down the kernels that Quire started, and close the connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.gather(self.open_documents.close_all(), self.owned_kernels.shut_down_all())
        for client in {id(client): client for client in (self._client, self._kernel_client)}.values():
            with contextlib.suppress(JupyterError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await client.close()


class ServerRegistry:
    def __init__(self, create_client: Callable[[str, str], JupyterClient]) -> None:
        """`create_client` takes a URL and a token and sends nothing yet."""
        self._create_client = create_client
        self._servers: dict[str, Server] = {}

    def create(self, name: str, address: Address) -> Server:
        """Create a server without registering it."""
        client = self._create_client(address.url, address.token)
        if not address.kernel_url or address.kernel_url == address.url:
            return Server(name, client, url=address.url)
        kernel_client = self._create_client(address.kernel_url, address.kernel_token)
        return Server(name, client, url=address.url, kernel_client=kernel_client)

    def add(self, server: Server) -> None:
        self._servers[server.name] = server

    def list_all(self) -> list[Server]:
        return list(self._servers.values())

    def get(self, name: str = "") -> Server:
        """The server of this name; the first one if the name is empty. Raises Missing."""
        if not name and self._servers:
            return next(iter(self._servers.values()))
        server = self._servers.get(name)
        if server is not None:
            return server
        names = f" There are: {', '.join(self._servers)}." if self._servers else ""
        problem = f"The Jupyter server {name!r} is not connected" if name else "No Jupyter server is connected"
        raise Missing(
            f"{problem}.{names} connect_to_jupyter connects one, or start Quire with --jupyter-url and --jupyter-token."
        )

    async def close(self) -> None:
        servers, self._servers = self.list_all(), {}
        await asyncio.gather(*(server.close() for server in servers))
