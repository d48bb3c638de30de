"""Hibernate idle kernels whose whole state can be saved; save and close all others after a longer timeout."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import anyio

from quire.core.checkpoints.snapshot_writer import SnapshotWriter
from quire.core.errors import QuireError
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook

log = logging.getLogger(__name__)
_POLL_S = 30.0


@dataclass(frozen=True, kw_only=True)
class IdleRules:
    hibernate_after: float  # idle seconds until a kernel that loses nothing is closed; 0 never
    timeout: float  # idle seconds until any kernel is closed; 0 never


class Hibernator:
    def __init__(self, slots: KernelSlots, writer: SnapshotWriter | None, rules: IdleRules) -> None:
        self._slots = slots
        self._writer = writer
        self._rules = rules

    async def watch(self) -> None:
        """Runs until cancelled."""
        times = [seconds for seconds in (self._rules.hibernate_after, self._rules.timeout) if seconds]
        while times:
            await anyio.sleep(min(_POLL_S, *times))
            for status in self._slots.list_live():
                try:
                    if status.idle is not None:
                        await self._close_if_due(status.notebook, status.idle)
                except QuireError as error:
                    log.warning("closing the kernel of notebook %r: %s", status.notebook.name, error)

    async def hibernate(self, notebook: Notebook, reason: str) -> bool:
        """Save and close the kernel, unless it is in use or would lose something. Returns whether it is closed."""
        lineage = self._slots.lineage(notebook)
        head = lineage.head if lineage is not None else None
        try:
            if self._writer is None or not await self._writer.save_completely(notebook):
                return False
        except QuireError as error:
            log.warning("putting the kernel of notebook %r to sleep: %s", notebook.name, error)
            return False
        await self._slots.close_if_idle(notebook, head, reason)
        return self._slots.live_kernel(notebook) is None

    async def _close_if_due(self, notebook: Notebook, idle: float) -> None:
        after, timeout = self._rules.hibernate_after, self._rules.timeout
        lineage = self._slots.lineage(notebook)
        head = lineage.head if lineage is not None else None
        reason = f"it was put to sleep after {after:g} s without use"
        if after and idle >= after and await self.hibernate(notebook, reason):
            return
        if timeout and idle >= timeout:
            try:
                if self._writer is not None:
                    await self._writer.ensure_saved(notebook)
            finally:
                await self._slots.close_if_idle(notebook, head, f"it was closed after {timeout:g} s without use")
