"""Makes kernels of one language in WebAssembly, once its program is there."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from quire.core.errors import Failed
from quire.core.model import KernelSpec, Layer, RuntimeInfo
from quire.core.ports import Relay
from quire.runtimes.wasm import assets, words
from quire.runtimes.wasm.kernel import WasmKernel
from quire.runtimes.wasm.pool import Pool

log = logging.getLogger(__name__)
_LAYERS = ("wasm", "network", "processes", "files")  # what a guest has none of, by construction


class WasmRuntime:
    def __init__(self, language: str, *, calls: Relay, assets: Path, files: int) -> None:
        self._language = language
        self._calls = calls
        self._assets = assets
        self._files = files  # that a guest may have open at once
        self._pool = Pool(language, assets)
        self._making = asyncio.Lock()
        self._made = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WasmRuntime]:
        """Nothing is started before it is asked for; leaving ends every process."""
        self._folder = Path(tempfile.mkdtemp(prefix="quire-images-"))
        try:
            async with self._pool.open():
                yield self
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def start(self, spec: KernelSpec) -> WasmKernel:
        await self._have()
        try:
            await anyio.Path(spec.workspace).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"The workspace {spec.workspace} cannot be made: {error.strerror}.") from error
        make = words.Make(
            workspace=spec.workspace,
            mounts=[[each.path, each.writable] for each in spec.mounts],
            memory=spec.limits.memory,
            fuel=spec.limits.fuel,
            files=self._files,
        )
        return await WasmKernel.start(self._pool, self._calls, self._folder, spec, make)

    async def _have(self) -> None:
        """The program, made where it is not there yet. Raises Failed with what to do."""
        if self._made:
            return
        if importlib.util.find_spec("wasmtime") is None:
            raise Failed(f"{self._language} needs wasmtime: pip install 'quire[wasm]'.")
        async with self._making:
            if not self._made:
                await asyncio.to_thread(assets.have, self._language, self._assets, log.info)
                self._made = True

    @property
    def spares(self) -> int:
        return 0

    async def ready(self) -> None:
        """It starts with the first sandbox."""

    async def about(self) -> RuntimeInfo:
        try:
            await self._have()
            hello = await (await self._pool.room()).hello()
        except Failed as error:
            return RuntimeInfo(name=self._language, why_not=str(error))
        return RuntimeInfo(name=self._language, version=hello.version, layers=tuple(map(Layer, _LAYERS)))
