"""Kernels of the Jupyter server that Quire runs in, through its kernel and session managers."""

from __future__ import annotations

from typing import Any

from jupyter_server.utils import ensure_async
from tornado.web import HTTPError

from quire.clients.jupyter.kernels import models
from quire.clients.jupyter.kernels.local_kernel import LocalKernel
from quire.clients.jupyter.kernels.server_kernels import ServerKernels
from quire.clients.jupyter.ports import JupyterError, KernelInfo, Missing, SpecInfo
from quire.clients.jupyter.server.paths import normalize_path


class LocalKernels(ServerKernels[LocalKernel]):
    def __init__(self, serverapp: Any) -> None:
        super().__init__()
        self._serverapp = serverapp

    async def list_running(self) -> list[KernelInfo]:
        sessions, (_, specs) = await self._sessions(), await self.list_specs()
        running = self._kernels.list_kernels()
        return [
            models.to_kernel_info(kernel, specs, models.session_paths(sessions, kernel["id"])) for kernel in running
        ]

    async def exists(self, kernel: str) -> bool:
        return kernel in self._kernels

    async def list_specs(self) -> tuple[str, list[SpecInfo]]:
        model = await ensure_async(self._serverapp.kernel_spec_manager.get_all_specs())
        return models.to_specs({"default": self._kernels.default_kernel_name, "kernelspecs": model})

    async def start(self, *, path: str = "", spec: str = "") -> KernelInfo:
        name, specs = await self._find_spec(spec)
        try:
            if path:
                server_path = normalize_path(path)
                return models.to_kernel_info(
                    await self._create_session(server_path, kernel_name=name), specs, [server_path]
                )
            kernel = await ensure_async(self._kernels.start_kernel(kernel_name=name))
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            raise JupyterError(f"The kernel {name!r} could not be started: {error}") from None
        return models.to_kernel_info(self._kernels.kernel_model(kernel), specs)

    async def assign(self, path: str, kernel: str) -> None:
        server_path = normalize_path(path)
        if await self._is_used_by(server_path, kernel):
            return
        self._kernel_model(kernel)
        await self._create_session(server_path, kernel_id=kernel)

    async def connect(self, kernel: str) -> LocalKernel:
        model = self._kernel_model(kernel)
        _, specs = await self.list_specs()
        connection = LocalKernel(self._kernels, models.to_kernel_info(model, specs), self._connections.discard)
        await connection.open()
        self._connections.add(connection)
        return connection

    async def shut_down(self, kernel: str) -> None:
        if kernel in self._kernels:
            try:
                await ensure_async(self._kernels.shutdown_kernel(kernel))
            except (KeyError, HTTPError):
                return  # it has ended meanwhile

    @property
    def _kernels(self) -> Any:
        return self._serverapp.kernel_manager

    def _kernel_model(self, kernel: str) -> Any:
        try:
            return self._kernels.kernel_model(kernel)
        except (KeyError, HTTPError):
            raise Missing(f"There is no kernel {kernel!r} on this Jupyter server; list those that run.") from None

    async def _sessions(self) -> Any:
        return await self._serverapp.session_manager.list_sessions()

    async def _create_session(self, path: str, **options: str) -> Any:
        """Create a session for a document without one. Returns its kernel."""
        model = models.find_kernel(await self._sessions(), path)
        if model is not None:
            raise models.already_in_use(path, model["id"])
        name = path.rpartition("/")[2]
        session = await self._serverapp.session_manager.create_session(path=path, name=name, type="notebook", **options)
        return session["kernel"]
