"""The runtimes that start kernels, and the spec of each notebook's kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quire.core.model import KernelSpec, Notebook, RuntimeInfo
from quire.core.ports.kernel import Kernel, Runtime


class Runtimes:
    def __init__(self, by_name: Mapping[str, Runtime], spec: Callable[[Notebook], KernelSpec]) -> None:
        self._by_name = by_name
        self.spec = spec

    async def start(self, notebook: Notebook) -> Kernel:
        """Start a kernel. Raises OperationFailed."""
        return await self._by_name[notebook.runtime].start(self.spec(notebook))

    async def describe(self, name: str) -> RuntimeInfo:
        """The runtime's state on this machine."""
        if name not in self._by_name:
            return RuntimeInfo(name=name, why_not="no kernels are started here")
        return await self._by_name[name].about()

    async def describe_all(self) -> list[RuntimeInfo]:
        return [await self.describe(name) for name in self._by_name]

    async def wait_ready(self) -> None:
        """Wait until each runtime can start a kernel without delay. Raises OperationFailed."""
        for runtime in self._by_name.values():
            await runtime.ready()

    @property
    def spare_count(self) -> int:
        """Kernels started ahead for new notebooks."""
        return sum(runtime.spares for runtime in self._by_name.values())
