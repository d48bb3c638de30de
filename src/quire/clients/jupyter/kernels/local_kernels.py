"""Kernels of the Jupyter server that we are part of, by its kernel and session managers."""

from __future__ import annotations

from typing import Any

from jupyter_server.utils import ensure_async
from tornado.web import HTTPError

from quire.clients.jupyter.kernels import kernelspecs, models
from quire.clients.jupyter.kernels.local_kernel import InsideKernel
from quire.clients.jupyter.kernels.server_kernels import ServerKernels
from quire.clients.jupyter.ports import JupyterError, KernelInfo, Missing, SpecInfo
from quire.clients.jupyter.server.paths import below_root


class InsideKernels(ServerKernels[InsideKernel]):
    def __init__(self, serverapp: Any) -> None:
        super().__init__()
        self._serverapp = serverapp

    async def listing(self) -> list[KernelInfo]:
        sessions, (_, specs) = await self._sessions(), await self.specs()
        every = self._kernels.list_kernels()
        return [models.kernel(each, specs, models.paths_of(sessions, each["id"])) for each in every]

    async def specs(self) -> tuple[str, list[SpecInfo]]:
        found = await ensure_async(self._serverapp.kernel_spec_manager.get_all_specs())
        return kernelspecs.read({"default": self._kernels.default_kernel_name, "kernelspecs": found})

    async def start(self, *, path: str = "", spec: str = "") -> KernelInfo:
        name, specs = await self._spec(spec)
        try:
            if path:
                place = below_root(path)
                return models.kernel(await self._session(place, kernel_name=name), specs, [place])
            kernel = await ensure_async(self._kernels.start_kernel(kernel_name=name))
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            raise JupyterError(f"The kernel {name!r} could not be started: {error}") from None
        return models.kernel(self._kernels.kernel_model(kernel), specs)

    async def use(self, path: str, kernel: str) -> None:
        place = below_root(path)
        if await self._uses(place, kernel):
            return
        self._model(kernel)
        await self._session(place, kernel_id=kernel)

    async def connect(self, kernel: str) -> InsideKernel:
        model = self._model(kernel)
        _, specs = await self.specs()
        connection = InsideKernel(self._kernels, models.kernel(model, specs), self._connections.discard)
        await connection.open()
        self._connections.add(connection)
        return connection

    async def shutdown(self, kernel: str) -> None:
        if kernel in self._kernels:
            try:
                await ensure_async(self._kernels.shutdown_kernel(kernel))
            except (KeyError, HTTPError):
                return  # somebody else was quicker

    @property
    def _kernels(self) -> Any:
        return self._serverapp.kernel_manager

    def _model(self, kernel: str) -> Any:
        try:
            return self._kernels.kernel_model(kernel)
        except (KeyError, HTTPError):
            raise Missing(f"There is no kernel {kernel!r} on this Jupyter server; list those that run.") from None

    async def _sessions(self) -> Any:
        return await self._serverapp.session_manager.list_sessions()

    async def _session(self, path: str, **how: str) -> Any:
        """A session for a document that has none; the kernel of it. One that has is left alone."""
        found = models.kernel_of(await self._sessions(), path)
        if found is not None:
            raise models.in_use(path, found["id"])
        name = path.rpartition("/")[2]
        session = await self._serverapp.session_manager.create_session(path=path, name=name, type="notebook", **how)
        return session["kernel"]
