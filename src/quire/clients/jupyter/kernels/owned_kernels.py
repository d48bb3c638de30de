"""The kernels of one server that Quire started: each ends when no notebook runs in it any more."""

from __future__ import annotations

import asyncio
from collections import Counter

from quire.clients.jupyter.ports import Kernels


class OwnedKernels:
    """By their ids. Notebooks are counted for every kernel, but only those that Quire started are shut down."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._owned: set[str] = set()
        self._notebooks: Counter[str] = Counter()  # how many run in each kernel

    def __contains__(self, kernel: str) -> bool:
        return kernel in self._owned

    def add(self, kernel: str) -> None:
        self._owned.add(kernel)

    def use(self, kernel: str) -> None:
        """One more notebook runs in it."""
        self._notebooks[kernel] += 1

    async def release(self, kernel: str) -> None:
        """One notebook less. The last one shuts down a kernel that Quire started."""
        self._notebooks[kernel] -= 1
        if self._notebooks[kernel] <= 0:
            del self._notebooks[kernel]
            await self._shut_down(kernel)

    async def shut_down_unused(self, kernel: str) -> None:
        """Shut down a kernel that Quire started and that no notebook runs in."""
        if not self._notebooks[kernel]:
            await self._shut_down(kernel)

    async def shut_down_all(self) -> None:
        await asyncio.gather(*map(self._shut_down, list(self._owned)), return_exceptions=True)

    async def _shut_down(self, kernel: str) -> None:
        if kernel in self._owned:
            self._owned.discard(kernel)
            await self._kernels.shut_down(kernel)
