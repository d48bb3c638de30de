"""Kernels of a Jupyter server from outside: its REST API, and one lasting websocket for each kernel we speak to."""

from __future__ import annotations

import asyncio
from typing import Any

from quire.clients.jupyter.kernels import kernelspecs, models
from quire.clients.jupyter.kernels.remote_kernel import RemoteKernel
from quire.clients.jupyter.kernels.server_kernels import ServerKernels
from quire.clients.jupyter.ports import JupyterError, KernelInfo, Missing, SpecInfo
from quire.clients.jupyter.server.http_client import Server
from quire.clients.jupyter.server.paths import below_root

STARTING = 60.0  # seconds a kernel may take to start, or to end


class RemoteKernels(ServerKernels[RemoteKernel]):
    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    async def listing(self) -> list[KernelInfo]:
        kernels, sessions, (_, specs) = await asyncio.gather(
            self._server.ask("GET", "api/kernels"), self._sessions(), self.specs()
        )
        if not isinstance(kernels, list):
            raise JupyterError("The server's list of kernels is not what Jupyter's API says.")
        return [models.kernel(each, specs, models.paths_of(sessions, each["id"])) for each in kernels]

    async def specs(self) -> tuple[str, list[SpecInfo]]:
        return kernelspecs.read(await self._server.ask("GET", "api/kernelspecs"))

    async def start(self, *, path: str = "", spec: str = "") -> KernelInfo:
        name, specs = await self._spec(spec)
        if not path:
            model = await self._server.ask("POST", "api/kernels", body={"name": name}, timeout=STARTING)
            return models.kernel(model, specs)
        place = below_root(path)
        return models.kernel(await self._session(place, spec=name), specs, [place])

    async def use(self, path: str, kernel: str) -> None:
        place = below_root(path)
        if await self._uses(place, kernel):
            return
        await self._model(kernel)
        await self._session(place, kernel_id=kernel)

    async def connect(self, kernel: str) -> RemoteKernel:
        model = await self._model(kernel)
        _, specs = await self.specs()
        connection = RemoteKernel(self._server, models.kernel(model, specs), self._connections.discard)
        await connection.open()
        self._connections.add(connection)
        return connection

    async def shutdown(self, kernel: str) -> None:
        status, text = await self._server.request("DELETE", f"api/kernels/{checked(kernel)}", timeout=STARTING)
        if status >= 400 and status != 404:
            raise JupyterError(f"The kernel {kernel} was not shut down ({status}): {text[:200]}")

    async def _model(self, kernel: str) -> Any:
        missing = f"There is no kernel {kernel!r} on the Jupyter server at {self._server.url}; list those that run."
        return await self._server.ask("GET", f"api/kernels/{checked(kernel)}", missing=missing)

    async def _sessions(self) -> Any:
        return await self._server.ask("GET", "api/sessions")

    async def _session(self, path: str, *, spec: str = "", kernel_id: str = "") -> Any:
        """A session for a document that has none; the kernel of it. One that has is left alone."""
        found = models.kernel_of(await self._sessions(), path)
        if found is not None:
            raise models.in_use(path, found["id"])
        body = models.session_body(path, spec=spec, kernel_id=kernel_id)
        session = await self._server.ask("POST", "api/sessions", body=body, timeout=STARTING)
        model = session.get("kernel") if isinstance(session, dict) else None
        if isinstance(model, dict) and kernel_id and model.get("id") != kernel_id:
            raise models.in_use(path, str(model.get("id")))
        return model


def checked(kernel: str) -> str:
    """Raises Missing for what cannot be a kernel's id, before it is put into a url."""
    if not kernel or not all(char.isalnum() or char in "-_" for char in kernel):
        raise Missing(f"{kernel!r} is no kernel's id; list the kernels that run.")
    return kernel
