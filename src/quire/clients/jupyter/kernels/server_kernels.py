"""Base of the kernels of one Jupyter server: kernels of documents, kernelspecs and connections."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from quire.clients.jupyter.kernels import models
from quire.clients.jupyter.ports import KernelInfo, SpecInfo
from quire.clients.jupyter.server.paths import normalize_path


class Connection(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class ServerKernels(Generic[C]):
    """`C` is the type of a connection to a kernel. Subclasses call the server."""

    def __init__(self) -> None:
        self._connections: set[C] = set()

    async def list_specs(self) -> tuple[str, list[SpecInfo]]:
        raise NotImplementedError

    async def _sessions(self) -> Any:
        """In the format of Jupyter's API."""
        raise NotImplementedError

    async def _kernel_model(self, kernel: str) -> Any:
        """In the format of Jupyter's API. Raises Missing."""
        raise NotImplementedError

    async def _create_session(self, path: str, *, spec: str = "", kernel_id: str = "") -> Any:
        """Create a session for a document. Returns its kernel."""
        raise NotImplementedError

    def _connection(self, info: KernelInfo) -> C:
        raise NotImplementedError

    async def find_for_document(self, path: str) -> KernelInfo | None:
        server_path = normalize_path(path)
        sessions = await self._sessions()
        model = models.find_kernel(sessions, server_path)
        if model is None:
            return None
        _, specs = await self.list_specs()
        return models.to_kernel_info(model, specs, models.session_paths(sessions, model["id"]))

    async def assign(self, path: str, kernel: str) -> None:
        server_path = normalize_path(path)
        used = models.find_kernel(await self._sessions(), server_path)
        if used is None or used["id"] != kernel:
            await self._kernel_model(kernel)
            await self._start_session(server_path, kernel_id=kernel)

    async def _start_session(self, path: str, *, spec: str = "", kernel_id: str = "") -> Any:
        """Create a session, unless the document has one. Returns its kernel."""
        used = models.find_kernel(await self._sessions(), path)
        if used is not None:
            raise models.already_in_use(path, used["id"])
        return await self._create_session(path, spec=spec, kernel_id=kernel_id)

    async def connect(self, kernel: str) -> C:
        model = await self._kernel_model(kernel)
        _, specs = await self.list_specs()
        connection = self._connection(models.to_kernel_info(model, specs))
        await connection.open()
        self._connections.add(connection)
        return connection

    async def _find_spec(self, name: str) -> tuple[str, list[SpecInfo]]:
        """The kernelspec's name, the default one if it is empty, and all kernelspecs. Raises Missing."""
        default, specs = await self.list_specs()
        name = name or default
        if name not in [spec.name for spec in specs]:
            raise models.spec_not_found(name, specs)
        return name, specs

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
