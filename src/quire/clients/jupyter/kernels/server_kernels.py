"""Base of the kernels of one Jupyter server: kernels of documents, kernelspecs and connections."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from quire.clients.jupyter.kernels import models
from quire.clients.jupyter.ports import KernelInfo, SpecInfo
from quire.clients.jupyter.server.paths import normalize_path


class Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class ServerKernels(Generic[C]):
    """`C` is the type of a connection to a kernel. Subclasses call the server."""

    def __init__(self) -> None:
        self._connections: set[C] = set()

    async def list_specs(self) -> tuple[str, list[SpecInfo]]:
        raise NotImplementedError

    async def _sessions(self) -> Any:
        """In the format of Jupyter's API."""
        raise NotImplementedError

    async def find_for_document(self, path: str) -> KernelInfo | None:
        server_path = normalize_path(path)
        sessions = await self._sessions()
        model = models.find_kernel(sessions, server_path)
        if model is None:
            return None
        _, specs = await self.list_specs()
        return models.to_kernel_info(model, specs, models.session_paths(sessions, model["id"]))

    async def _is_used_by(self, path: str, kernel: str) -> bool:
        model = models.find_kernel(await self._sessions(), path)
        return model is not None and model["id"] == kernel

    async def _find_spec(self, name: str) -> tuple[str, list[SpecInfo]]:
        """The kernelspec's name, the default one if it is empty, and all kernelspecs. Raises Missing."""
        default, specs = await self.list_specs()
        name = name or default
        if name not in [spec.name for spec in specs]:
            raise models.spec_not_found(name, specs)
        return name, specs

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
