"""The slots of all notebooks: find, lock, list and close their kernels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from quire.core.errors import InvalidRequest
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.slot import KernelSlot
from quire.core.model import Notebook, NotebookId, RunId
from quire.core.ports.kernel import Kernel
from quire.core.ports.store import Leases


@dataclass(frozen=True, kw_only=True)
class KernelStatus:
    notebook: Notebook
    kernel: Kernel
    named: frozenset[str]  # checkpoints with a name
    idle: float | None  # seconds since the last request; None while one uses the kernel

    @property
    def id(self) -> NotebookId:
        return self.notebook.id


class KernelSlots:
    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._slots: dict[NotebookId, KernelSlot] = {}

    def get(self, notebook: Notebook) -> KernelSlot:
        """The notebook's slot; created on first use."""
        found = self._slots.get(notebook.id)
        if found is None:
            found = self._slots[notebook.id] = KernelSlot(notebook)
        return found

    @asynccontextmanager
    async def lock(self, notebook: Notebook, *, is_request: bool = True) -> AsyncIterator[KernelSlot]:
        """Lock the slot. For a request the kernel counts as busy meanwhile, and as used afterwards."""
        slot = self.get(notebook)
        slot.request_count += is_request
        if is_request:
            slot.request_arrived.set()
        try:
            async with slot.lock:
                if is_request:
                    slot.notebook = notebook
                try:
                    yield slot
                finally:
                    if is_request:
                        slot.used_at = anyio.current_time()
        finally:
            slot.request_count -= is_request

    async def reserve(self, notebook: Notebook) -> bool:
        """Reserve the notebook for this process. Returns whether it is; another process may have it."""
        return await self._leases.hold(notebook.id) is not None

    def is_busy(self, notebook: Notebook) -> bool:
        slot = self._slots.get(notebook.id)
        return slot is not None and slot.request_count > 0

    def check_not_busy(self, notebook: Notebook) -> None:
        """Raises InvalidRequest while a request uses the kernel."""
        if self.is_busy(notebook):
            raise InvalidRequest(
                f"A cell of notebook {notebook.name!r} runs or waits. Let it end, or call interrupt; then call again."
            )

    def live_kernel(self, notebook: Notebook) -> Kernel | None:
        """The live kernel, for reading its state. To run code in it, lease it."""
        slot = self._slots.get(notebook.id)
        return slot.kernel if slot is not None and slot.kernel is not None and slot.kernel.alive else None

    def lineage(self, notebook: Notebook) -> RunLineage | None:
        """The runs that led to the live kernel's state; None without a live kernel."""
        return self._slots[notebook.id].lineage if self.live_kernel(notebook) is not None else None

    def list_live(self) -> list[KernelStatus]:
        now = anyio.current_time()
        return [
            KernelStatus(
                notebook=slot.notebook,
                kernel=slot.kernel,
                named=frozenset(slot.named_checkpoints.values()),
                idle=None if slot.request_count else now - slot.used_at,
            )
            for slot in self._slots.values()
            if slot.kernel is not None
        ]

    def add_notice(self, notebook: Notebook, notice: str) -> None:
        """Tell the client with the next answer, because the current one has no place for it."""
        slot = self.get(notebook)
        slot.notice = " ".join(filter(None, (slot.notice, notice)))

    async def close_kernel(self, slot: KernelSlot) -> None:
        """End the slot's kernel, if any, and the reservation of its notebook. The caller holds the lock."""
        kernel, slot.kernel = slot.kernel, None
        slot.lineage = RunLineage()
        slot.named_checkpoints = {}
        if kernel is not None:
            with anyio.CancelScope(shield=True):
                await kernel.close()
        with anyio.CancelScope(shield=True):
            await self._leases.release(slot.notebook.id)

    async def close_if_idle(self, notebook: Notebook, head: RunId | None, reason: str) -> None:
        """End the kernel, unless it is in use or its last run is not `head` any more."""
        async with self.lock(notebook, is_request=False) as slot:
            if not slot.request_count and slot.lineage.head == head:
                await self.close_kernel(slot)
                slot.end_reason = reason

    async def forget(self, notebook: Notebook) -> None:
        """End the kernel of a notebook that is about to be deleted, and drop its slot."""
        async with self.lock(notebook) as slot:
            await self.close_kernel(slot)
        self._slots.pop(notebook.id, None)

    async def close(self) -> None:
        async with anyio.create_task_group() as group:
            for slot in self._slots.values():
                group.start_soon(self.close_kernel, slot)
