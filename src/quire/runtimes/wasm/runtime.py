"""Makes kernels of one language in WebAssembly, once its program is there."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio

from quire.core.errors import Failed
from quire.core.model import KernelSpec, Layer, RuntimeInfo
from quire.core.ports import Relay
from quire.runtimes.wasm import words
from quire.runtimes.wasm.kernel import WasmKernel
from quire.runtimes.wasm.pool import Pool
from quire.runtimes.wasm.shelf import shelf

_SOON = 3.0  # seconds that are waited for a program that may have to be made
_LAYERS = ("wasm", "network", "processes", "files")  # what a guest has none of, by construction


class WasmRuntime:
    def __init__(
        self, language: str, *, program: str, calls: Relay, assets: Path, images: Path, files: int, most_calls: int
    ) -> None:
        self._language = language
        self._calls = calls
        self._files = files  # that a guest may have open at once
        self._most_calls = most_calls  # of capabilities, by one run
        self._place = images
        self._images: Path | None = None  # until a kernel is started
        self._shelf = ExitStack()
        self._pool = Pool(program, assets)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WasmRuntime]:
        """Nothing is started before it is asked for; leaving ends every process."""
        async with self._pool.open():
            try:
                yield self
            finally:
                self._shelf.close()

    async def start(self, spec: KernelSpec) -> WasmKernel:
        self._check()
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
            calls=self._most_calls,
        )
        return await WasmKernel.start(self._pool, self._calls, self._folder(), spec, make)

    def _folder(self) -> Path:
        if self._images is None:
            self._images = self._shelf.enter_context(shelf(self._place))
        return self._images

    def _check(self) -> None:
        """Raises Failed with what to do."""
        if importlib.util.find_spec("wasmtime") is None:
            raise Failed(f"{self._language} needs wasmtime: pip install 'quire[wasm]'.")

    @property
    def spares(self) -> int:
        return 0

    async def ready(self) -> None:
        """It starts with the first sandbox."""

    async def about(self) -> RuntimeInfo:
        try:
            self._check()
            host = await self._pool.any()
            async with asyncio.timeout(_SOON):
                hello = await host.hello()
        except TimeoutError:
            return RuntimeInfo(name=self._language, why_not=f"its program is being made, look again soon: {host.doing}")
        except Failed as error:
            return RuntimeInfo(name=self._language, why_not=str(error))
        packages, layers = tuple(hello.packages), tuple(map(Layer, _LAYERS))
        return RuntimeInfo(name=self._language, version=hello.version, packages=packages, layers=layers)
