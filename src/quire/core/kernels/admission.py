"""Enforce the limits on kernels. At a limit, the kernel that is idle longest is hibernated to make room."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from quire.core.errors import OverLimit
from quire.core.kernels.slots import KernelSlots, KernelStatus
from quire.core.limits.quotas import Quotas
from quire.core.model import Notebook, NotebookId, Principal

_MAX_WAIT_S = 10.0  # for a busy kernel to become idle, or an idle one to be saved
_POLL_S = 0.1
_REASON = "it was put to sleep to make room for another"


class KernelAdmission:
    def __init__(
        self, slots: KernelSlots, hibernate: Callable[[Notebook, str], Awaitable[bool]], quotas: Quotas
    ) -> None:
        """`hibernate` hibernates a notebook's kernel and returns whether it did."""
        self._slots = slots
        self._hibernate = hibernate
        self._quotas = quotas
        self._starting: dict[NotebookId, Principal] = {}  # notebooks whose kernels are being started, in order

    @asynccontextmanager
    async def reserve(self, notebook: Notebook) -> AsyncIterator[None]:
        """Make room for this notebook's kernel, which the block starts. Raises OverLimit."""
        self._starting[notebook.id] = notebook.owner
        try:
            await self._make_room(notebook)
            yield
        finally:
            self._starting.pop(notebook.id, None)

    async def _make_room(self, notebook: Notebook) -> None:
        tried: set[NotebookId] = set()
        with anyio.move_on_after(_MAX_WAIT_S):
            while limit := self._reached_limit(notebook):
                candidates = self._candidates(limit, notebook.owner)
                idle = next((one.notebook for one in candidates if one.idle is not None and one.id not in tried), None)
                if idle is not None:
                    tried.add(idle.id)
                    await self._hibernate(idle, _REASON)
                elif any(one.idle is None for one in candidates):
                    await anyio.sleep(_POLL_S)  # a busy one may become idle
                else:
                    break
        if limit := self._reached_limit(notebook):
            raise OverLimit(self._refusal(notebook, limit))

    def _reached_limit(self, notebook: Notebook) -> str:
        """The setting that forbids the kernel. Kernels that are being started count if they came first."""
        owners = {status.id: status.notebook.owner for status in self._slots.list_live()}
        for id_, owner in self._starting.items():
            if id_ == notebook.id:
                break
            owners[id_] = owner
        owners.pop(notebook.id, None)
        limit = self._quotas.over_kernels(Counter(owners.values()), notebook.owner)
        if limit or not self._quotas.memory_per_user:
            return limit
        return (
            "limits.max_memory_bytes_per_user"
            if self._memory_of(notebook.owner) >= self._quotas.memory_per_user
            else ""
        )

    def _memory_of(self, owner: Principal) -> int:
        return sum(status.kernel.memory() for status in self._slots.list_live() if status.notebook.owner == owner)

    def _candidates(self, limit: str, owner: Principal) -> list[KernelStatus]:
        """Kernels that could make room: of this user if the limit is per user, else of the user with the most first;
        those idle longest first."""
        live = self._slots.list_live()
        if limit != "limits.max_kernels":
            live = [status for status in live if status.notebook.owner == owner]
        counts = Counter(status.notebook.owner for status in live)
        return sorted(live, key=lambda status: (-counts[status.notebook.owner], -(status.idle or 0.0)))

    def _refusal(self, notebook: Notebook, limit: str) -> str:
        quotas = self._quotas
        state = {
            "limits.max_kernels": f"{quotas.kernels:,} live on this server",
            "limits.max_kernels_per_user": f"{quotas.kernels_per_user:,} of this user live",
            "limits.max_memory_bytes_per_user": (
                f"the kernels of this user hold {self._memory_of(notebook.owner) / 2**20:,.0f} MiB together, "
                f"of {quotas.memory_per_user / 2**20:,.0f}"
            ),
        }[limit]
        return (
            f"No kernel was started for notebook {notebook.name!r}, nothing was run: {state}, which is the limit "
            f"(setting {limit}). None of them can be hibernated now: each runs a cell or holds objects that cannot be "
            "saved. End one with reset, or call again when a run has ended."
        )
