"""Active runs: when callers learn the outcome."""

from __future__ import annotations

import anyio
import pytest

from quire.core.errors import OperationFailed
from quire.core.kernels.slot import KernelSlot
from quire.core.model import LOCAL, Cell, CellId, CellKind, NewCell, Notebook, NotebookId, Run, RunId
from quire.core.runs.active_run import RunState
from quire.core.runs.transcript import Transcript

BOOK = Notebook(id=NotebookId("n"), owner=LOCAL, name="n", runtime="python", created_at=0.0)
RUN = Run(id=RunId("r"), cell=CellId("c"), count=1, source="1", author="agent", started_at=0.0)


def begun() -> RunState:
    state = RunState(BOOK, NewCell(source="1"), 1.0, Transcript(1_000), "agent")
    state.begin(Cell(id=CellId("c"), number=0, kind=CellKind.CODE, source="1", run=RUN))
    return state


async def test_wait_persisted_returns_when_the_outcome_is_on_disk() -> None:
    active = begun()
    await active.wait_persisted()  # one that goes on says nothing of an end
    active.set_outcome(RUN)
    with anyio.move_on_after(0.01) as waited:
        await active.wait_persisted()
    assert waited.cancelled_caught
    active.finish()
    await active.wait_persisted()


async def test_error_is_raised_only_if_it_came_before_the_end() -> None:
    lost, answered = begun(), begun()
    lost.fail(OperationFailed("it is not on disk"))
    for active in (lost, answered):
        active.set_outcome(RUN)
        active.finish()
    answered.fail(OperationFailed("the checkpoint could not be taken"))
    await answered.wait_persisted()
    with pytest.raises(OperationFailed, match="it is not on disk"):
        await lost.wait_persisted()


async def test_wait_idle_ends_when_a_request_arrives() -> None:
    slot = KernelSlot(BOOK)
    assert await slot.wait_idle(0.01) and not slot.lineage.why_unprotected
    async with anyio.create_task_group() as group:
        group.start_soon(slot.wait_idle, 60.0)
        await anyio.lowlevel.checkpoint()
        slot.request_arrived.set()
    assert "too quickly" in slot.lineage.why_unprotected
    slot.request_count = 1
    assert not await slot.wait_idle(60.0)
