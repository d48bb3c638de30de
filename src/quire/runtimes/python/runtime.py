"""Makes Python kernels: a warm zygote for each interpreter, and a spare kernel so that a new notebook need not wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from quire.core.errors import Failed
from quire.core.model import KernelSpec
from quire.core.ports import Relay
from quire.runtimes.python import venv
from quire.runtimes.python.kernel import PythonKernel
from quire.runtimes.python.zygote import Zygote

_WARM = 120.0  # seconds the zygote has to import what it preloads, on a cold disk too
_REST = 0.3  # seconds after a start before the next spare is made: the notebook that took one goes first
PRELOAD = ("numpy", "pandas", "matplotlib.pyplot")


class PythonRuntime:
    def __init__(self, *, python: str, calls: Relay, preload: tuple[str, ...] = PRELOAD, spares: int = 1) -> None:
        self._python = python
        self._calls = calls
        self._preload = preload
        self._zygotes: dict[str, Zygote] = {}  # by interpreter
        self._starting: dict[str, asyncio.Lock] = {}
        self._spares: list[PythonKernel] = []
        self._wanted = spares
        self._taken = asyncio.Event()
        self._stocking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PythonRuntime]:
        """The zygote warms up while the server answers its first calls; leaving ends every process."""
        with contextlib.suppress(Failed):  # the first start says why
            self._zygotes[self._python] = Zygote.spawn(self._python, self._preload)
        self._stocking = asyncio.get_running_loop().create_task(self._stock())
        try:
            yield self
        finally:
            self._stocking.cancel()
            await asyncio.shield(self._close())

    async def start(self, spec: KernelSpec) -> PythonKernel:
        try:
            await anyio.Path(spec.workspace).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"The workspace {spec.workspace} cannot be made: {error.strerror}.") from error
        python = await self._interpreter(spec)
        kernel = self._spare() if python == self._python else None
        if kernel is None:
            kernel = await PythonKernel.start(await self._warm(python), self._calls)
        await kernel.enter(spec)
        return kernel

    async def about(self) -> dict[str, Any]:
        """The zygote's own words: its Python and what it has preloaded."""
        return await (await self._warm(self._python)).ready()

    async def _interpreter(self, spec: KernelSpec) -> str:
        if spec.python == venv.WORD:
            return await venv.interpreter(spec.workspace, self._python)
        return spec.python or self._python

    async def _warm(self, python: str) -> Zygote:
        """The interpreter's zygote, ready: started anew where it is gone."""
        async with self._starting.setdefault(python, asyncio.Lock()):
            zygote = self._zygotes.get(python)
            if zygote is None or not zygote.alive:
                if zygote is not None:
                    await zygote.close()
                zygote = self._zygotes[python] = Zygote.spawn(python, self._preload)
            try:
                await asyncio.wait_for(zygote.ready(), _WARM)
            except TimeoutError:
                await zygote.close()
                raise Failed(
                    f"Python did not load {', '.join(self._preload)} within {_WARM:g} s. Call again."
                ) from None
            return zygote

    def _spare(self) -> PythonKernel | None:
        while self._spares:
            kernel = self._spares.pop()
            self._taken.set()
            if kernel.alive:
                return kernel
        return None

    async def _stock(self) -> None:
        """Keep so many spares; runs until cancelled."""
        while True:
            self._taken.clear()
            with contextlib.suppress(Failed):  # the next start says why
                while len(self._spares) < self._wanted:
                    self._spares.append(await PythonKernel.start(await self._warm(self._python), self._calls))
            await self._taken.wait()
            await asyncio.sleep(_REST)

    async def _close(self) -> None:
        assert self._stocking is not None
        await asyncio.wait([self._stocking])
        await asyncio.gather(*(kernel.close() for kernel in self._spares))
        await asyncio.gather(*(zygote.close() for zygote in self._zygotes.values()))
