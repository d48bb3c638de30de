"""Makes Python kernels: one warm zygote, started with the server and again whenever it is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from quire.core.errors import Failed
from quire.core.model import KernelSpec
from quire.runtimes.python.kernel import PythonKernel
from quire.runtimes.python.zygote import Zygote

_WARM = 120.0  # seconds the zygote has to import what it preloads, on a cold disk too
PRELOAD = ("numpy", "pandas", "matplotlib.pyplot")


class PythonRuntime:
    def __init__(self, *, python: str, preload: tuple[str, ...] = PRELOAD) -> None:
        self._python = python
        self._preload = preload
        self._zygote: Zygote | None = None
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PythonRuntime]:
        """The zygote warms up while the server answers its first calls; leaving ends every process."""
        with contextlib.suppress(Failed):  # the first start says why
            self._zygote = Zygote.spawn(self._python, self._preload)
        try:
            yield self
        finally:
            if self._zygote is not None:
                await asyncio.shield(self._zygote.close())

    async def start(self, spec: KernelSpec) -> PythonKernel:
        try:
            await anyio.Path(spec.workspace).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"The workspace {spec.workspace} cannot be made: {error.strerror}.") from error
        return await PythonKernel.start(await self._warm(), spec)

    async def about(self) -> dict[str, Any]:
        """The zygote's own words: its Python and what it has preloaded."""
        return await (await self._warm()).ready()

    async def _warm(self) -> Zygote:
        """The zygote, ready: started anew where it is gone."""
        async with self._starting:
            if self._zygote is None or not self._zygote.alive:
                if self._zygote is not None:
                    await self._zygote.close()
                self._zygote = Zygote.spawn(self._python, self._preload)
            try:
                await asyncio.wait_for(self._zygote.ready(), _WARM)
            except TimeoutError:
                await self._zygote.close()
                raise Failed(
                    f"Python did not load {', '.join(self._preload)} within {_WARM:g} s. Call again."
                ) from None
            return self._zygote
