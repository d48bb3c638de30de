"""Kernels of one Jupyter server, however it is reached: which a document uses, and connections to them."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from quire.clients.jupyter.kernels import kernelspecs, models
from quire.clients.jupyter.ports import KernelInfo, SpecInfo
from quire.clients.jupyter.server.paths import below_root


class Open(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Open)


class ServerKernels(Generic[C]):
    """`C` is a connection to one of them. How the server is asked is for those who inherit this."""

    def __init__(self) -> None:
        self._connections: set[C] = set()

    async def specs(self) -> tuple[str, list[SpecInfo]]:
        raise NotImplementedError

    async def _sessions(self) -> Any:
        """As Jupyter's API lists them."""
        raise NotImplementedError

    async def of(self, path: str) -> KernelInfo | None:
        place = below_root(path)
        sessions = await self._sessions()
        found = models.kernel_of(sessions, place)
        if found is None:
            return None
        _, specs = await self.specs()
        return models.kernel(found, specs, models.paths_of(sessions, found["id"]))

    async def _uses(self, path: str, kernel: str) -> bool:
        found = models.kernel_of(await self._sessions(), path)
        return found is not None and found["id"] == kernel

    async def _spec(self, name: str) -> tuple[str, list[SpecInfo]]:
        """The kernelspec that is meant, without a name the default one, and all. Raises Missing."""
        default, specs = await self.specs()
        name = name or default
        if name not in [each.name for each in specs]:
            raise kernelspecs.no_spec(name, specs)
        return name, specs

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in list(self._connections)))
