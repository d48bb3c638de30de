"""Free memory when it is scarce: drop old checkpoints, then hibernate idle kernels. Busy kernels stay as they are."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from quire.core.kernels.slots import KernelSlots, KernelStatus
from quire.core.limits.quotas import Quotas
from quire.core.model import Notebook, NotebookId
from quire.core.ports.kernel import Machine

log = logging.getLogger(__name__)
_POLL_S = 2.0
_SETTLE_S = 0.2  # until freed memory shows in the machine's figures
_SAVE_TIMEOUT_S = 60.0  # for one kernel
_REASON = "it was put to sleep since memory was scarce"


@dataclass(frozen=True, kw_only=True)
class DropCheckpoints:
    kernel: KernelStatus
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Hibernate:
    kernel: KernelStatus


def next_step(kernels: Sequence[KernelStatus], tried: set[NotebookId]) -> list[DropCheckpoints] | Hibernate | None:
    """How to free memory next: drop all checkpoints except the newest and named ones; then hibernate the kernel idle
    longest, unless that was tried; then drop the other checkpoints of idle kernels. Pure."""
    older = [DropCheckpoints(kernel=status, names=names) for status in kernels if (names := _older(status))]
    if older:
        return older
    idle = sorted((status for status in kernels if status.idle is not None), key=lambda status: -(status.idle or 0.0))
    for status in idle:
        if status.id not in tried:
            return Hibernate(kernel=status)
    return [
        DropCheckpoints(kernel=status, names=tuple(status.kernel.checkpoints))
        for status in idle
        if status.kernel.checkpoints
    ] or None


def _older(status: KernelStatus) -> tuple[str, ...]:
    return tuple(name for name in list(status.kernel.checkpoints)[:-1] if name not in status.named)


class MemoryWatcher:
    def __init__(
        self,
        machine: Machine,
        slots: KernelSlots,
        hibernate: Callable[[Notebook, str], Awaitable[bool]],
        quotas: Quotas,
    ) -> None:
        self._machine = machine
        self._slots = slots
        self._hibernate = hibernate
        self._quotas = quotas
        self._has_warned = False

    async def watch(self) -> None:
        """Runs until cancelled."""
        while self._quotas.min_free_bytes or self._quotas.memory_per_user:
            await anyio.sleep(_POLL_S)
            try:
                await self._relieve("", self._is_scarce)
                if self._may_exceed_quota():
                    for owner in {status.notebook.owner for status in self._slots.list_live()}:
                        await self._relieve(owner, lambda: self._exceeds_quota(owner))  # noqa: B023 - awaited at once
            except Exception:
                log.exception("freeing memory")

    async def _relieve(self, owner: str, is_needed: Callable[[], bool]) -> None:
        """Free memory step by step while it is needed, of one user's kernels or of all."""
        tried: set[NotebookId] = set()
        while is_needed():
            kernels = [status for status in self._slots.list_live() if owner in ("", status.notebook.owner)]
            match next_step(kernels, tried):
                case Hibernate(kernel=status):
                    tried.add(status.id)
                    with anyio.move_on_after(_SAVE_TIMEOUT_S):
                        if await self._hibernate(status.notebook, _REASON):
                            log.warning("memory is scarce: the kernel of notebook %r sleeps", status.notebook.name)
                case None:
                    self._warn(owner)
                    return
                case drops:
                    self._drop(drops)
            await anyio.sleep(_SETTLE_S)
        self._has_warned = False

    def _drop(self, drops: list[DropCheckpoints]) -> None:
        log.warning("memory is scarce: dropping %d checkpoints", sum(len(drop.names) for drop in drops))
        for drop in drops:
            for name in drop.names:
                drop.kernel.kernel.forget(name)

    def _warn(self, owner: str) -> None:
        if not self._has_warned:
            whose = f"of user {owner!r} " if owner else ""
            log.warning("memory %sis scarce, and no idle kernel is left that could sleep", whose)
        self._has_warned = True

    def _is_scarce(self) -> bool:
        return self._machine.memory().available < self._quotas.min_free_bytes

    def _may_exceed_quota(self) -> bool:
        """Whether the memory in use is more than one user's quota. Asking every kernel takes longer."""
        memory = self._machine.memory()
        return 0 < self._quotas.memory_per_user < memory.total - memory.available

    def _exceeds_quota(self, owner: str) -> bool:
        held = sum(status.kernel.memory() for status in self._slots.list_live() if status.notebook.owner == owner)
        return held > self._quotas.memory_per_user
