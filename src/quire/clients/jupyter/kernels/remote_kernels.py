"""Kernels of a Jupyter server through its REST API."""

from __future__ import annotations

import asyncio
from typing import Any

from quire.clients.jupyter.kernels import models
from quire.clients.jupyter.kernels.remote_kernel import RemoteKernel
from quire.clients.jupyter.kernels.server_kernels import ServerKernels
from quire.clients.jupyter.ports import JupyterError, KernelInfo, Missing, SpecInfo
from quire.clients.jupyter.server.http_client import HttpClient
from quire.clients.jupyter.server.paths import normalize_path

START_TIMEOUT_S = 60.0  # also to shut down


class RemoteKernels(ServerKernels[RemoteKernel]):
    def __init__(self, http: HttpClient) -> None:
        super().__init__()
        self._http = http

    async def list_running(self) -> list[KernelInfo]:
        kernels, sessions, (_, specs) = await asyncio.gather(
            self._http.request_json("GET", "api/kernels"), self._sessions(), self.list_specs()
        )
        if not isinstance(kernels, list):
            raise JupyterError("The server's list of kernels is not what Jupyter's API says.")
        return [
            models.to_kernel_info(kernel, specs, models.session_paths(sessions, kernel["id"])) for kernel in kernels
        ]

    async def exists(self, kernel: str) -> bool:
        try:
            await self._kernel_model(kernel)
        except Missing:
            return False
        return True

    async def list_specs(self) -> tuple[str, list[SpecInfo]]:
        return models.to_specs(await self._http.request_json("GET", "api/kernelspecs"))

    async def start(self, *, path: str = "", spec: str = "") -> KernelInfo:
        name, specs = await self._find_spec(spec)
        if not path:
            model = await self._http.request_json("POST", "api/kernels", body={"name": name}, timeout=START_TIMEOUT_S)
            return models.to_kernel_info(model, specs)
        server_path = normalize_path(path)
        return models.to_kernel_info(await self._start_session(server_path, spec=name), specs, [server_path])

    def _connection(self, info: KernelInfo) -> RemoteKernel:
        return RemoteKernel(self._http, info, self._connections.discard)

    async def shut_down(self, kernel: str) -> None:
        status, text = await self._http.request("DELETE", f"api/kernels/{check_id(kernel)}", timeout=START_TIMEOUT_S)
        if status >= 400 and status != 404:
            raise JupyterError(f"The kernel {kernel} was not shut down ({status}): {text[:200]}")

    async def _kernel_model(self, kernel: str) -> Any:
        missing = f"There is no kernel {kernel!r} on the Jupyter server at {self._http.url}; list those that run."
        return await self._http.request_json("GET", f"api/kernels/{check_id(kernel)}", missing=missing)

    async def _sessions(self) -> Any:
        return await self._http.request_json("GET", "api/sessions")

    async def _create_session(self, path: str, *, spec: str = "", kernel_id: str = "") -> Any:
        body = models.session_body(path, spec=spec, kernel_id=kernel_id)
        session = await self._http.request_json("POST", "api/sessions", body=body, timeout=START_TIMEOUT_S)
        model = session.get("kernel") if isinstance(session, dict) else None
        if isinstance(model, dict) and kernel_id and model.get("id") != kernel_id:
            raise models.already_in_use(path, str(model.get("id")))
        return model


def check_id(kernel: str) -> str:
    """Raises Missing if this is not a valid kernel id. Checked before it becomes part of a URL."""
    if not kernel or not all(char.isalnum() or char in "-_" for char in kernel):
        raise Missing(f"{kernel!r} is no kernel's id; list the kernels that run.")
    return kernel
