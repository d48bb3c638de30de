"""The Python runtime: a warm zygote for each interpreter, and a spare kernel for the next notebook."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.limits.sandbox_layers import describe_layers
from quire.core.model import KernelSpec, RuntimeInfo
from quire.core.ports.kernel import Relay
from quire.runtimes.python import ipython_folder
from quire.runtimes.python import zygote as zygotes
from quire.runtimes.python.kernel import VENV, PythonKernel
from quire.runtimes.python.zygote import ZygoteClient
from quire.runtimes.sandbox.cgroups import Cgroups
from quire.runtimes.sandbox.kernel_sandbox import SandboxFactory
from quire.runtimes.sandbox.plan import MachineFeatures, plan_layers

_log = logging.getLogger(__name__)

_WARM_TIMEOUT_S = 120.0  # for the zygote to import what it preloads, also from a cold disk
_CANCEL_TIMEOUT_S = 5.0  # for the task that creates spares
_SPARE_DELAY_S = 0.3  # between a start and the next spare, so that the notebook that took one runs first
PRELOAD = ("numpy", "pandas", "matplotlib.pyplot")


class PythonRuntime:
    def __init__(
        self,
        *,
        python: str,
        calls: Relay,
        preload: tuple[str, ...] = PRELOAD,
        spares: int = 1,
        sandbox: str = "off",
        environment: Collection[str] = (),
        workspaces: Collection[Path] = (),
        libraries: Path,
        warm_at_start: bool = True,
    ) -> None:
        """`libraries` is where the copy of IPython for other interpreters is kept. With `warm_at_start` the zygote is
        started now; otherwise with the first kernel."""
        self._python = python
        self._calls = calls
        self._preload = preload
        self._sandbox = sandbox
        self._workspaces = workspaces  # the workspaces of all notebooks
        self._libraries = libraries
        self._copy_lock = asyncio.Lock()
        self._environ = zygotes.kernel_environment(None if sandbox == "off" else environment)
        self._cgroups: Cgroups | str = "the setting sandbox.mode is off" if sandbox == "off" else Cgroups.open()
        self._sandboxes: dict[str, SandboxFactory] = {}  # by interpreter
        self._zygotes: dict[str, ZygoteClient] = {}  # by interpreter
        self._start_locks: dict[str, asyncio.Lock] = {}
        self._spares: list[PythonKernel] = []
        self._spare_count = spares
        self._warm_at_start = warm_at_start
        self._spare_taken = asyncio.Event()
        self._spare_task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PythonRuntime]:
        """The zygote warms up while the server answers its first calls. Leaving ends every process."""
        self._spare_task = asyncio.get_running_loop().create_task(self._keep_spares())
        try:
            yield self
        finally:
            self._spare_task.cancel()
            await asyncio.shield(self._close())

    async def start(self, spec: KernelSpec) -> PythonKernel:
        try:
            await anyio.Path(spec.workspace).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OperationFailed(f"The workspace {spec.workspace} cannot be created: {error.strerror}.") from error
        python = self._trusted_interpreter(spec)
        kernel = self._take_spare() if python == self._python else None
        if kernel is None:
            kernel = await self._create_kernel(python)
            self._spare_taken.set()
        try:
            await kernel.enter(spec, await self._ipython_path(VENV if spec.python == VENV else python))
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def _create_kernel(self, python: str) -> PythonKernel:
        zygote = await self._warm_zygote(python)
        return await PythonKernel.start(zygote, self._calls, await self._sandbox_for(python, zygote))

    async def _sandbox_for(self, python: str, zygote: ZygoteClient) -> SandboxFactory:
        """The sandbox for kernels of this interpreter. Raises InvalidRequest where the setting requires more than there
        is."""
        if python not in self._sandboxes:
            cgroup_problem = self._cgroups if isinstance(self._cgroups, str) else ""
            machine = MachineFeatures.from_probe((await zygote.ready())["features"], cgroup_problem)
            groups = None if isinstance(self._cgroups, str) else self._cgroups
            self._sandboxes[python] = SandboxFactory(plan_layers(machine, self._sandbox), groups)
            _log.info("kernels are put behind: %s", describe_layers(self._sandboxes[python].plan.layers))
        return self._sandboxes[python]

    @property
    def spares(self) -> int:
        return len(self._spares)

    async def ready(self) -> None:
        await self._warm_zygote(self._python)

    async def about(self) -> RuntimeInfo:
        try:
            zygote = await self._warm_zygote(self._python)
            ready, layers = await zygote.ready(), (await self._sandbox_for(self._python, zygote)).plan.layers
        except (OperationFailed, InvalidRequest) as error:
            return RuntimeInfo(name="python", why_not=str(error))
        packages = tuple(str(name) for name in ready["ready"])
        return RuntimeInfo(name="python", version=str(ready["python"]), packages=packages, layers=layers)

    def _trusted_interpreter(self, spec: KernelSpec) -> str:
        """The interpreter to start outside the sandbox. It must not lie where a cell can write."""
        if spec.python in ("", VENV):
            return self._python
        mounts = [Path(mount.path) for mount in spec.mounts if mount.writable]
        writable_paths = [*self._workspaces, Path(spec.workspace), *mounts]
        path = Path(spec.python).absolute()
        resolved = (path, path.resolve())  # a link could be changed later
        if self._sandbox != "off" and any(path.is_relative_to(place) for path in resolved for place in writable_paths):
            raise InvalidRequest(
                f"{spec.python} lies where cells can write, and it would be started outside the sandbox. "
                'python="venv" makes an environment in the workspace that runs inside.'
            )
        return spec.python

    async def _warm_zygote(self, python: str) -> ZygoteClient:
        """The interpreter's zygote, ready. Started again if it has ended."""
        async with self._start_locks.setdefault(python, asyncio.Lock()):
            zygote = self._zygotes.get(python)
            if zygote is None or not zygote.alive:
                if zygote is not None:
                    await zygote.close()
                zygote = self._zygotes[python] = await self._spawn(python)
            try:
                async with asyncio.timeout(_WARM_TIMEOUT_S):
                    await zygote.ready()
            except TimeoutError:
                await zygote.close()
                raise OperationFailed(
                    f"Python did not load {', '.join(self._preload)} within {_WARM_TIMEOUT_S:g} s. Call again."
                ) from None
            return zygote

    async def _spawn(self, python: str) -> ZygoteClient:
        return ZygoteClient.spawn(python, self._preload, self._environ, await self._ipython_path(python))

    async def _ipython_path(self, python: str) -> str:
        """A folder with IPython for interpreters that may have none; "" for the server's own interpreter."""
        if python == sys.executable:
            return ""
        async with self._copy_lock:
            try:
                return str(await asyncio.to_thread(ipython_folder.ensure, self._libraries))
            except (
                ipython_folder.IPythonCopyError
            ) as error:  # the interpreter may have IPython; cells that need it say why
                _log.warning("interpreters without IPython have none: %s", error)
                return ""

    def _take_spare(self) -> PythonKernel | None:
        while self._spares:
            kernel = self._spares.pop()
            self._spare_taken.set()
            if kernel.alive:
                return kernel
        return None

    async def _keep_spares(self) -> None:
        """Keep the wanted number of spares; runs until cancelled."""
        if self._warm_at_start:
            with contextlib.suppress(OperationFailed):  # the first start reports it
                await self._warm_zygote(self._python)
        else:
            await self._spare_taken.wait()
            await asyncio.sleep(_SPARE_DELAY_S)
        while True:
            self._spare_taken.clear()
            with contextlib.suppress(OperationFailed, InvalidRequest):  # the next start reports it
                while len(self._spares) < self._spare_count:
                    self._spares.append(await self._create_kernel(self._python))
            await self._spare_taken.wait()
            await asyncio.sleep(_SPARE_DELAY_S)

    async def _close(self) -> None:
        assert self._spare_task is not None
        while (await asyncio.wait([self._spare_task], timeout=_CANCEL_TIMEOUT_S))[1]:
            _log.warning("spare kernels are still being created, at %s; cancelling again", self._spare_task.get_stack())
            self._spare_task.cancel()
        await asyncio.gather(*(kernel.close() for kernel in self._spares))
        await asyncio.gather(*(zygote.close() for zygote in self._zygotes.values()))
        if isinstance(self._cgroups, Cgroups):
            await asyncio.to_thread(self._cgroups.close)
