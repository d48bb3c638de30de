"""The kernels of one server that Quire started. Each is shut down when no notebook runs in it."""

from __future__ import annotations

import asyncio
from collections import Counter

from quire.clients.jupyter.ports import Kernels


class OwnedKernels:
    """Counts the notebooks of every kernel, but shuts down only kernels that Quire started."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._owned: set[str] = set()
        self._notebooks: Counter[str] = Counter()  # number of notebooks by kernel id

    def __contains__(self, kernel: str) -> bool:
        return kernel in self._owned

    def add(self, kernel: str) -> None:
        self._owned.add(kernel)

    def use(self, kernel: str) -> None:
        """A notebook starts to use the kernel."""
        self._notebooks[kernel] += 1

    async def release(self, kernel: str) -> None:
        """A notebook no longer uses the kernel. After the last one, a kernel that Quire started is shut down."""
        self._notebooks[kernel] -= 1
        if self._notebooks[kernel] <= 0:
            del self._notebooks[kernel]
            await self._shut_down(kernel)

    async def shut_down_unused(self, kernel: str) -> None:
        """Shut down a kernel if Quire started it and no notebook runs in it."""
        if not self._notebooks[kernel]:
            await self._shut_down(kernel)

    async def shut_down_all(self) -> None:
        await asyncio.gather(*map(self._shut_down, list(self._owned)), return_exceptions=True)

    async def _shut_down(self, kernel: str) -> None:
        if kernel in self._owned:
            self._owned.discard(kernel)
            await self._kernels.shut_down(kernel)
