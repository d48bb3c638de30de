"""Makes kernels of one language in WebAssembly, once its program is there."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.model import LOCAL, KernelSpec, Layer, RuntimeInfo
from quire.core.ports.kernel import Relay
from quire.runtimes.wasm import words
from quire.runtimes.wasm.kernel import WasmKernel
from quire.runtimes.wasm.pool import Pool
from quire.runtimes.wasm.reach import Reach
from quire.runtimes.wasm.shelf import images_of, shelf

_SOON = 3.0  # seconds that are waited for a program that may have to be made
_LAYERS = ("wasm", "network", "processes", "files")  # what a guest has none of, by construction


class WasmRuntime:
    def __init__(
        self,
        language: str,
        *,
        program: str,
        calls: Relay,
        assets: Path,
        images: Path,
        files: int,
        most_calls: int,
        reach: Reach,
    ) -> None:
        self._language = language
        self._calls = calls
        self._files = files  # that a guest may have open at once
        self._most_calls = most_calls  # of capabilities, by one run
        self._place = images
        self._images: Path | None = None  # until a kernel is started
        self._shelf = ExitStack()
        self._pool = Pool(program, assets, reach)
        self._known: words.Hello | None = None

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
        """Raises OperationFailed with what to do."""
        if self._images is None and importlib.util.find_spec("wasmtime") is None:
            raise OperationFailed(f"{self._language} needs wasmtime: pip install 'quire[wasm]'.")

    @property
    def spares(self) -> int:
        return 0

    async def ready(self) -> None:
        """It starts with the first sandbox."""

    async def about(self) -> RuntimeInfo:
        try:
            self._check()
            async with asyncio.timeout(_SOON):
                said = self._known = self._known or await self._hello()
        except TimeoutError:
            why = f"its program is not there yet ({self._pool.doing}): look again soon, or run `quire assets`"
            return RuntimeInfo(name=self._language, why_not=why)
        except (OperationFailed, InvalidRequest) as error:
            return RuntimeInfo(name=self._language, why_not=str(error))
        layers = (*map(Layer, _LAYERS), *(Layer(name, why) for name, why in said.layers.items()))
        return RuntimeInfo(name=self._language, version=said.version, packages=tuple(said.packages), layers=layers)

    async def _hello(self) -> words.Hello:
        """What every host says; one of the local user's is started for it, who may need it next."""
        host = await self._pool.room(LOCAL, images_of(self._folder(), LOCAL))
        return await host.hello()
