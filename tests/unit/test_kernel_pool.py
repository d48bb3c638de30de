"""Leases of kernels: what remains of one that failed."""

from __future__ import annotations

from typing import cast

import pytest

from quire.core.checkpoints.checkpointer import Checkpointer
from quire.core.errors import NotebookLocked
from quire.core.kernels.admission import KernelAdmission
from quire.core.kernels.pool import KernelPool, KernelRules
from quire.core.kernels.recovery import KernelRecovery
from quire.core.kernels.runtimes import Runtimes
from quire.core.kernels.slots import KernelSlots
from quire.core.limits.quotas import Quotas
from quire.core.model import LOCAL, KernelSpec, Notebook, NotebookId
from quire.core.ports.store import NotebookStore, RunStore

BOOK = Notebook(id=NotebookId("n"), owner=LOCAL, name="n", runtime="python", created_at=0.0)


class TakenLeases:
    """Another process has every notebook."""

    async def hold(self, notebook: NotebookId) -> int | None:
        return None

    async def release(self, notebook: NotebookId) -> None: ...


async def never_hibernates(notebook: Notebook, reason: str) -> bool:
    return False


def no_spec(notebook: Notebook) -> KernelSpec:
    raise AssertionError("no kernel is started")


async def test_failed_lease_leaves_the_notebook_not_busy() -> None:
    slots, runtimes = KernelSlots(TakenLeases()), Runtimes({}, no_spec)
    recovery = KernelRecovery(slots, cast(NotebookStore, None), cast(RunStore, None), None)
    admission = KernelAdmission(slots, never_hibernates, Quotas())
    pool = KernelPool(
        slots, runtimes, Checkpointer(slots, runtimes, recovery), recovery, None, admission, KernelRules()
    )
    for _ in range(2):
        with pytest.raises(NotebookLocked):
            async with pool.lease(BOOK):
                pass
    assert slots.get(BOOK).request_count == 0
