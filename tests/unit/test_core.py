"""Decisions of the core that need no kernel."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace

import pytest

from quire.core.errors import InvalidRequest
from quire.core.kernels.lineage import RunLineage
from quire.core.kernels.slot import RecoveryResult
from quire.core.limits.validation import Limits, check_name
from quire.core.model import LOCAL, CellId, CellState, Died, Notebook, NotebookId, Run, RunId
from quire.core.ops.change_bus import Change
from quire.core.ports.kernel import START
from quire.core.runs.active_run import StopReason
from quire.core.runs.outcome import describe_restored, outcome
from quire.frontends.mcp.notices import addresses
from quire.runtimes.python.checkpoint_budget import CheckpointSizes, MachineMemory
from quire.runtimes.python.exit_reason import ProcessExit, exit_reason
from quire.wire.messages import Finished

LIMITS = Limits(
    cell_timeout=30, max_timeout=100, max_cells=10, max_code_bytes=10, max_output_bytes=10, grace=1, call_wait_seconds=1
)  # fmt: skip


AS_BEFORE = "Variables are as they were before this cell."
RUNS = (RunId("a"), RunId("b"))


def ended(how: str) -> Finished:
    return Finished(run="r", outcome=how)


@pytest.mark.parametrize(
    ("finished", "died", "stopping", "state", "cause", "advice"),
    [
        (ended("success"), None, None, CellState.SUCCESS, "", ""),
        (ended("success"), None, StopReason.TIMEOUT, CellState.SUCCESS, "", ""),
        (ended("error"), None, None, CellState.ERROR, "", ""),
        (
            ended("error"),
            None,
            StopReason.TIMEOUT,
            CellState.TIMEOUT,
            "Stopped after 5 s, its timeout.",
            "larger timeout",
        ),
        (ended("interrupted"), None, StopReason.TIMEOUT, CellState.TIMEOUT, "Stopped after 5 s", "larger timeout"),
        (ended("interrupted"), None, StopReason.INTERRUPT, CellState.INTERRUPTED, "Stopped by an interrupt.", ""),
        (ended("interrupted"), None, None, CellState.INTERRUPTED, "Stopped by an interrupt.", ""),
        (None, Died(reason="It burnt.", hint="Use water."), None, CellState.CRASHED, "It burnt.", "Use water."),
        (None, Died(reason="It burnt."), StopReason.TIMEOUT, CellState.TIMEOUT, "did not stop when interrupted", ""),
        (None, Died(reason="It burnt."), StopReason.INTERRUPT, CellState.INTERRUPTED, "did not stop by itself", ""),
        (None, None, StopReason.SHUTDOWN, CellState.INTERRUPTED, "server was stopped", ""),
        (None, None, None, CellState.CRASHED, "gone", ""),
    ],
)
def test_how_a_run_ended(
    finished: Finished | None, died: Died | None, stopping: StopReason | None, state: CellState, cause: str, advice: str
) -> None:
    found = outcome(finished, died, stopping, 5)
    assert found[0] is state
    for words, said in ((cause, found[1]), (advice, found[2])):
        assert words in said and bool(words) == bool(said)


@pytest.mark.parametrize(
    ("recovered", "cells", "says", "says_not"),
    [
        (RecoveryResult(restored=True), [], AS_BEFORE, "Not restored"),
        (
            RecoveryResult(restored=True, missing=("thread a", "polars")),
            [],
            f"{AS_BEFORE} Not restored: thread a, polars",
            "",
        ),
        (
            RecoveryResult(restored=True, lost_runs=RUNS, why="no room"),
            [3, 4],
            "last 2 runs before it did is gone too: there was no checkpoint, no room",
            AS_BEFORE,
        ),
        (RecoveryResult(restored=True, lost_runs=RUNS), [3, 4], "Run again: cells 3, 4.", AS_BEFORE),
        (RecoveryResult(restored=True, lost_runs=RUNS), [], "cells deleted since", AS_BEFORE),
        (RecoveryResult(restored=False, why="It broke."), [], "The kernel is gone", AS_BEFORE),
        (
            RecoveryResult(restored=False, why="It broke."),
            [],
            "(It broke.); the next run starts another, with",
            AS_BEFORE,
        ),
        (
            RecoveryResult(restored=False, why="dead", next_kernel="empty"),
            [],
            "(dead); the next run starts another.",
            "saved",
        ),
        (RecoveryResult(restored=False, why="dead", next_kernel="none"), [], "The kernel is gone (dead).", "next run"),
    ],
)
def test_recovery_result_is_described(recovered: RecoveryResult, cells: list[int], says: str, says_not: str) -> None:
    said = describe_restored(replace(recovered, lost_cells=tuple(cells)))
    assert says in said and (not says_not or says_not not in said)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (ProcessExit(status=signal.SIGSEGV), "segmentation fault"),
        (ProcessExit(status=signal.SIGABRT), "aborted itself"),
        (ProcessExit(status=signal.SIGKILL), "no evidence"),
        (ProcessExit(status=signal.SIGKILL, oom=True, peak_bytes=300 << 20), "ran out of memory"),
        (ProcessExit(status=signal.SIGKILL, oom=True, peak_bytes=300 << 20), "300 MiB"),
        (ProcessExit(status=signal.SIGSEGV, oom=True), "segmentation fault"),
        (ProcessExit(status=signal.SIGKILL, why="processes"), "more processes than it may"),
        (ProcessExit(status=signal.SIGUSR1), f"signal {int(signal.SIGUSR1)}"),
        (ProcessExit(status=40), "signal 40"),
        (ProcessExit(status=3 << 8), "exited with code 3"),
        (ProcessExit(), "not known"),
    ],
)
def test_how_a_process_ended(how: ProcessExit, says: str) -> None:
    died = exit_reason(how)
    assert says in died.reason + died.hint


def test_an_exit_status_is_read_as_the_system_writes_it() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert "code 7" in exit_reason(ProcessExit(status=os.waitpid(pid, 0)[1])).reason


def ran(lineage: RunLineage, *names: str) -> None:
    for name in names:
        run = Run(
            id=RunId(name), cell=CellId(f"c{name}"), count=1, source="", author="", started_at=0, seconds=1, parent=None
        )
        lineage.advance(run)


def test_nearest_checkpoint_is_the_newest_ancestor() -> None:
    lineage = RunLineage()
    assert lineage.nearest_checkpoint(()) == (START, [])
    ran(lineage, "a", "b", "c")
    assert lineage.nearest_checkpoint({"a", "b", "c"}) == ("c", [])
    assert lineage.nearest_checkpoint({"a"}) == ("a", ["b", "c"])
    assert lineage.nearest_checkpoint(()) == (START, ["a", "b", "c"])


def test_rollback_keeps_later_runs_in_the_lineage() -> None:
    lineage = RunLineage()
    ran(lineage, "a", "b")
    assert lineage.stale_marks("a") == {"a": False, "b": True}
    lineage.move_to("a")
    ran(lineage, "c")
    assert lineage.nearest_checkpoint({"a", "b"}) == ("a", ["c"])
    assert lineage.ancestors(lineage.head) == ["c", "a"]
    assert lineage.stale_marks("b") == {"a": False, "b": False, "c": True}
    assert lineage.stale_marks(START) == {"a": True, "b": True, "c": True}
    lineage.move_to(START)
    assert lineage.nearest_checkpoint({"a", "b", "c"}) == (START, [])


def test_only_expensive_checkpoints_wait_for_a_pause() -> None:
    lineage = RunLineage()
    lineage.checkpoint_taken(0.001)
    assert lineage.checkpoint_delay() == 0
    lineage.checkpoint_taken(0.3)
    ran(lineage, "a")
    assert lineage.checkpoint_delay() > 0
    ran(lineage, "b", "c")  # a second each: by now it is worth it
    assert lineage.checkpoint_delay() == 0


def test_checkpoints_wait_in_a_long_burst() -> None:
    lineage = RunLineage()
    lineage.checkpoint_taken(0.015)
    for _ in range(99):
        lineage.count_request(idle=0.001)
    assert lineage.checkpoint_delay() == 0
    lineage.count_request(idle=0.001)
    assert lineage.checkpoint_delay() > 0
    ran(lineage, "a")
    assert lineage.checkpoint_delay() == 0
    lineage.checkpoint_taken(0.015)
    assert lineage.checkpoint_delay() > 0
    lineage.count_request(idle=1)
    assert lineage.checkpoint_delay() == 0


MIB = 1 << 20
TOUCH = MIB // os.sysconf("SC_PAGE_SIZE")  # page faults of a mebibyte


def held(*sizes: int) -> CheckpointSizes:
    """Checkpoints a, b, c ... after each of which so many mebibytes were touched."""
    ledger, names, faults = CheckpointSizes(), [], 0
    for name, size in zip("abcdefgh", (0, *sizes), strict=False):
        names.append(name)
        faults += size * TOUCH
        ledger.add(names, faults)
    return ledger


def test_the_oldest_checkpoint_goes_first_a_named_one_last_the_newest_never() -> None:
    ledger = held(5, 5, 5)
    assert ledger.choose_dropped(100 * MIB, set()) == []
    assert ledger.choose_dropped(15 * MIB, set()) == ["a"]
    assert ledger.choose_dropped(15 * MIB, {"a"}) == ["b"]
    assert ledger.choose_dropped(0, {"a"}) == ["b", "c", "a"]


def test_only_a_checkpoint_that_seems_to_hold_much_is_weighed_before_it_goes() -> None:
    assert not held(5, 5, 5).needs_measuring(15 * MIB, set())
    ledger = held(500, 5, 5)
    assert ledger.needs_measuring(15 * MIB, set())
    ledger.set_measured(20 * MIB, {"a": 2 * MIB, "b": 6 * MIB, "c": 6 * MIB, "d": 2 * MIB})
    assert ledger.choose_dropped(20 * MIB, set()) == []
    assert ledger.choose_dropped(18 * MIB, set()) == ["a"]


def test_a_woken_checkpoint_counts_its_pages_from_the_beginning() -> None:
    ledger = held(5, 5)
    ledger.remove("c")
    ledger.add(["a", "b", "c"], 1 * TOUCH)
    assert ledger.choose_dropped(13 * MIB, set()) == ["a"]
    assert ledger.choose_dropped(14 * MIB + 2 * MIB, set()) == []


def test_memory_that_is_scarce_leaves_less_for_checkpoints_but_never_nothing() -> None:
    def share(available: int) -> int:
        return MachineMemory(total=100 << 30, available=available << 30).allowed_bytes(256 * MIB)

    assert share(90) == 256 * MIB
    assert share(50) == 128 * MIB
    assert share(5) == share(20) > 0
    assert MachineMemory(total=100, available=60).has_room_for_copy(40)
    assert not MachineMemory(total=100, available=60).has_room_for_copy(55)


@pytest.mark.parametrize("name", ["main", "a b", "data.2026", "épreuve", "x" * 100, "a+b,c-d_e"])
def test_names_that_are_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 101, "a/b", "a\\b", " a", "a ", "a\n", "\x00", "..", "cell", "a?b", "a%20", "{x}"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_name(name)


@pytest.mark.parametrize("timeout", [0, -1, 101, math.nan, math.inf, -math.inf])
def test_timeouts_that_are_refused(timeout: float) -> None:
    with pytest.raises(InvalidRequest, match="max_timeout"):
        LIMITS.check_timeout(timeout)


def test_a_timeout_left_out_is_the_default() -> None:
    assert LIMITS.check_timeout(None) == 30 and LIMITS.check_timeout(0.001) == 0.001


@pytest.mark.parametrize(
    ("code", "says"), [("", "empty"), ("\x00", "NUL"), ("'\ud800'", "surrogate"), ("é" * 6, "12 bytes")]
)
def test_code_that_is_refused(code: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        LIMITS.check_code(code)


def test_a_change_shows_at_every_address_of_its_cell() -> None:
    book = Notebook(id=NotebookId("n"), name="a b", owner=LOCAL, runtime="python", created_at=0)
    found = addresses(Change(notebook=book, cell=CellId("c1"), number=3))
    for uri in ("notebook://a%20b/cells", "notebook://current/info", "notebook://a%20b/cell/c1", "notebook://cell/3"):
        assert uri in found
