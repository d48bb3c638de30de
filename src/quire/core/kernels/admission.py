"""Room for one more kernel: where there are too many, the one nobody used for longest sleeps on disk for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from quire.core.errors import OverLimit
from quire.core.kernels.pool import KernelPool, KernelStatus
from quire.core.limits.quotas import Quotas
from quire.core.model import Notebook, NotebookId, Principal

_WAIT = 10.0  # seconds until a kernel at work may have become idle, and until one is written down
_LOOK = 0.1  # seconds between looks
_WHY = "it was put to sleep to make room for another"


class KernelAdmission:
    def __init__(
        self, kernels: KernelPool, hibernate: Callable[[Notebook, str], Awaitable[bool]], quotas: Quotas
    ) -> None:
        """`hibernate` puts a notebook's kernel to sleep and says whether it does."""
        self._kernels = kernels
        self._hibernate = hibernate
        self._quotas = quotas
        self._coming: dict[NotebookId, Principal] = {}  # whose kernels are being started, in the order they came

    @asynccontextmanager
    async def one_more(self, notebook: Notebook) -> AsyncIterator[None]:
        """There is room for this notebook's kernel, which the block starts. Raises OverLimit."""
        self._coming[notebook.id] = notebook.owner
        try:
            await self._make(notebook)
            yield
        finally:
            self._coming.pop(notebook.id, None)

    async def _make(self, notebook: Notebook) -> None:
        tried: set[NotebookId] = set()
        with anyio.move_on_after(_WAIT):
            while limit := self._reached(notebook):
                there = self._in_question(limit, notebook.owner)
                going = next((each.notebook for each in there if each.idle is not None and each.id not in tried), None)
                if going is not None:
                    tried.add(going.id)
                    await self._hibernate(going, _WHY)
                elif any(each.idle is None for each in there):
                    await anyio.sleep(_LOOK)  # one at work may be done soon
                else:
                    break
        if limit := self._reached(notebook):
            raise OverLimit(self._refusal(notebook, limit))

    def _reached(self, notebook: Notebook) -> str:
        """The setting that keeps the notebook from a kernel; those who came before it go first."""
        live = {each.id: each.notebook.owner for each in self._kernels.standing()}
        for id_, owner in self._coming.items():
            if id_ == notebook.id:
                break
            live[id_] = owner
        live.pop(notebook.id, None)
        over = self._quotas.over_kernels(Counter(live.values()), notebook.owner)
        if over or not self._quotas.memory_each:
            return over
        return "max_memory_bytes_per_user" if self._held(notebook.owner) >= self._quotas.memory_each else ""

    def _held(self, who: Principal) -> int:
        return sum(each.kernel.memory() for each in self._kernels.standing() if each.notebook.owner == who)

    def _in_question(self, limit: str, who: Principal) -> list[KernelStatus]:
        """Kernels that could make room, in the order they are to: of this principal where it is theirs that are too
        many, else of whoever has the most; those nobody used for longest first."""
        every = self._kernels.standing()
        if limit != "max_kernels":
            every = [each for each in every if each.notebook.owner == who]
        many = Counter(each.notebook.owner for each in every)
        return sorted(every, key=lambda each: (-many[each.notebook.owner], -(each.idle or 0.0)))

    def _refusal(self, notebook: Notebook, limit: str) -> str:
        quotas = self._quotas
        there = {
            "max_kernels": f"{quotas.kernels:,} live on this server",
            "max_kernels_per_user": f"{quotas.kernels_each:,} of this user live",
            "max_memory_bytes_per_user": f"those of this user hold {self._held(notebook.owner) / 2**20:,.0f} MiB "
            f"together, of {quotas.memory_each / 2**20:,.0f}",
        }[limit]
        return (
            f"No kernel was started for notebook {notebook.name!r}, nothing was run: {there}, the most there may be "
            f"(setting {limit}), and none can sleep on disk now: each runs a cell, or holds what cannot be saved. End "
            "one with reset, or call again when a run has ended."
        )
