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
                return models.to_kernel_info(await self._start_session(server_path, spec=name), specs, [server_path])
            kernel = await ensure_async(self._kernels.start_kernel(kernel_name=name))
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            raise JupyterError(f"The kernel {name!r} could not be started: {error}") from None
        return models.to_kernel_info(self._kernels.kernel_model(kernel), specs)

    def _connection(self, info: KernelInfo) -> LocalKernel:
        return LocalKernel(self._kernels, info, self._connections.discard)

    async def shut_down(self, kernel: str) -> None:
        if kernel in self._kernels:
            try:
                await ensure_async(self._kernels.shutdown_kernel(kernel))
            except (KeyError, HTTPError):
                return  # it has ended meanwhile

    @property
    def _kernels(self) -> Any:
        return self._serverapp.kernel_manager

    async def _kernel_model(self, kernel: str) -> Any:
        try:
            return self._kernels.kernel_model(kernel)
        except (KeyError, HTTPError):
            raise Missing(f"There is no kernel {kernel!r} on this Jupyter server; list those that run.") from None

    async def _sessions(self) -> Any:
        return await self._serverapp.session_manager.list_sessions()

    async def _create_session(self, path: str, *, spec: str = "", kernel_id: str = "") -> Any:
        session = await self._serverapp.session_manager.create_session(
            path=path,
            name=path.rpartition("/")[2],
            type="notebook",
            kernel_name=spec or None,
            kernel_id=kernel_id or None,
        )
        return session["kernel"]
