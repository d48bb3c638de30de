"""When memory is scarce: old checkpoints go first, then idle kernels sleep on disk; a run under way is left alone."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from quire.core.kernels.pool import KernelPool, KernelStatus
from quire.core.limits.quotas import Quotas
from quire.core.model import Notebook, NotebookId
from quire.core.ports.kernel import Machine

log = logging.getLogger(__name__)
_LOOK = 2.0  # seconds between looks
_SOON = 0.2  # seconds until what was let go of is seen to be free
_WRITING = 60.0  # seconds one kernel may take to be written down
_WHY = "it was put to sleep since memory was scarce"


@dataclass(frozen=True, kw_only=True)
class DropCheckpoints:
    """Let these checkpoints go."""

    kernel: KernelStatus
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Hibernate:
    """Put this kernel to sleep, if it loses nothing by it."""

    kernel: KernelStatus


def next_relief(kernels: Sequence[KernelStatus], awake: set[NotebookId]) -> list[DropCheckpoints] | Hibernate | None:
    """What to do next, one step at a time: checkpoints but the newest and those with a name; then the kernel nobody
    used for longest; then the checkpoints of idle kernels that are left. `awake` are those that cannot sleep."""
    older = [DropCheckpoints(kernel=each, names=names) for each in kernels if (names := _older(each))]
    if older:
        return older
    idle = sorted((each for each in kernels if each.idle is not None), key=lambda each: -(each.idle or 0.0))
    for each in idle:
        if each.id not in awake:
            return Hibernate(kernel=each)
    rest = [
        DropCheckpoints(kernel=each, names=tuple(each.kernel.checkpoints)) for each in idle if each.kernel.checkpoints
    ]
    return rest or None


def _older(each: KernelStatus) -> tuple[str, ...]:
    return tuple(name for name in list(each.kernel.checkpoints)[:-1] if name not in each.named)


class MemoryWatcher:
    def __init__(
        self,
        machine: Machine,
        kernels: KernelPool,
        hibernate: Callable[[Notebook, str], Awaitable[bool]],
        quotas: Quotas,
    ) -> None:
        self._machine = machine
        self._kernels = kernels
        self._hibernate = hibernate
        self._quotas = quotas
        self._warned = False

    async def watch(self) -> None:
        """Runs until cancelled."""
        while self._quotas.free or self._quotas.memory_each:
            await anyio.sleep(_LOOK)
            try:
                await self._relieve("", self._scarce)
                for owner in {each.notebook.owner for each in self._kernels.standing()} if self._may_exceed() else ():
                    await self._relieve(owner, lambda: self._exceeds(owner))  # noqa: B023 - awaited before the next
            except Exception:  # what went wrong once is tried again
                log.exception("making room in memory")

    async def _relieve(self, owner: str, needed: Callable[[], bool]) -> None:
        """Step by step, for as long as it is needed and there is something to do; of one principal, or of all."""
        awake: set[NotebookId] = set()
        while needed():
            kernels = [each for each in self._kernels.standing() if owner in ("", each.notebook.owner)]
            match next_relief(kernels, awake):
                case Hibernate(kernel=each):
                    awake.add(each.id)
                    with anyio.move_on_after(_WRITING):
                        if await self._hibernate(each.notebook, _WHY):
                            log.warning("memory is scarce: the kernel of notebook %r sleeps", each.notebook.name)
                case None:
                    self._warn(owner)
                    return
                case drops:
                    self._drop(drops)
            await anyio.sleep(_SOON)
        self._warned = False

    def _drop(self, drops: list[DropCheckpoints]) -> None:
        log.warning("memory is scarce: %d checkpoints are let go of", sum(len(each.names) for each in drops))
        for each in drops:
            for name in each.names:
                each.kernel.kernel.forget(name)

    def _warn(self, owner: str) -> None:
        if not self._warned:
            whose = f"of user {owner!r} " if owner else ""
            log.warning("memory %sis scarce, and no idle kernel is left that could sleep", whose)
        self._warned = True

    def _scarce(self) -> bool:
        return self._machine.memory().available < self._quotas.free

    def _may_exceed(self) -> bool:
        """Whether all that is in use could be too much for one principal: to ask each kernel takes a while."""
        memory = self._machine.memory()
        return 0 < self._quotas.memory_each < memory.total - memory.available

    def _exceeds(self, owner: str) -> bool:
        held = sum(each.kernel.memory() for each in self._kernels.standing() if each.notebook.owner == owner)
        return held > self._quotas.memory_each
