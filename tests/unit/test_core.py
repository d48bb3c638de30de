"""Decisions of the core that need no kernel."""

from __future__ import annotations

import math
import os
import signal

import pytest

from quire.core.active import Stop
from quire.core.errors import Refused
from quire.core.feed import Change
from quire.core.kernels import Recovered
from quire.core.limits import Limits, check_name
from quire.core.line import Line
from quire.core.model import LOCAL, CellId, CellState, Died, Notebook, NotebookId, Run, RunId
from quire.core.outcomes import outcome, restored
from quire.core.ports import START
from quire.frontends.mcp.notices import addresses
from quire.runtimes.python.budget import Ledger, first_to_go
from quire.runtimes.python.exits import Exit, exit_reason
from quire.wire.messages import Finished

LIMITS = Limits(
    cell_timeout=30, max_timeout=100, max_cells=10, max_code_bytes=10, max_output_bytes=10, grace=1, patience=1
)  # fmt: skip


AS_BEFORE = "Variables are as they were before this cell."
RUNS = (RunId("a"), RunId("b"))


def ended(how: str) -> Finished:
    return Finished(run="r", outcome=how)


@pytest.mark.parametrize(
    ("finished", "died", "stopping", "state", "cause", "advice"),
    [
        (ended("success"), None, None, CellState.SUCCESS, "", ""),
        (ended("success"), None, Stop.TIMEOUT, CellState.SUCCESS, "", ""),
        (ended("error"), None, None, CellState.ERROR, "", ""),
        (ended("error"), None, Stop.TIMEOUT, CellState.TIMEOUT, "Stopped after 5 s, its timeout.", "larger timeout"),
        (ended("interrupted"), None, Stop.TIMEOUT, CellState.TIMEOUT, "Stopped after 5 s", "larger timeout"),
        (ended("interrupted"), None, Stop.INTERRUPT, CellState.INTERRUPTED, "Interrupted.", ""),
        (ended("interrupted"), None, None, CellState.INTERRUPTED, "Interrupted.", ""),
        (None, Died(reason="It burnt.", hint="Use water."), None, CellState.CRASHED, "It burnt.", "Use water."),
        (None, Died(reason="It burnt."), Stop.TIMEOUT, CellState.TIMEOUT, "did not stop when interrupted", ""),
        (None, Died(reason="It burnt."), Stop.INTERRUPT, CellState.INTERRUPTED, "did not stop by itself", ""),
        (None, None, Stop.SHUTDOWN, CellState.INTERRUPTED, "server was stopped", ""),
        (None, None, None, CellState.CRASHED, "gone", ""),
    ],
)
def test_how_a_run_ended(
    finished: Finished | None, died: Died | None, stopping: Stop | None, state: CellState, cause: str, advice: str
) -> None:
    found = outcome(finished, died, stopping, 5)
    assert found[0] is state
    for words, said in ((cause, found[1]), (advice, found[2])):
        assert words in said and bool(words) == bool(said)


@pytest.mark.parametrize(
    ("recovered", "cells", "says", "says_not"),
    [
        (Recovered(restored=True), [], AS_BEFORE, "Not restored"),
        (
            Recovered(restored=True, broken=("thread a", "polars")),
            [],
            f"{AS_BEFORE} Not restored: thread a, polars",
            "",
        ),
        (
            Recovered(restored=True, lost=RUNS, why="no room"),
            [3, 4],
            "last 2 runs before it did is gone too: there was no checkpoint, no room",
            AS_BEFORE,
        ),
        (Recovered(restored=True, lost=RUNS), [3, 4], "Run again: cells 3, 4.", AS_BEFORE),
        (Recovered(restored=True, lost=RUNS), [], "cells deleted since", AS_BEFORE),
        (Recovered(restored=False, why="It broke."), [], "Variables are gone, cells are kept", AS_BEFORE),
        (Recovered(restored=False, why="It broke."), [], "a fresh kernel (It broke.)", AS_BEFORE),
    ],
)
def test_what_became_of_the_variables(recovered: Recovered, cells: list[int], says: str, says_not: str) -> None:
    said = restored(recovered, cells)
    assert says in said and (not says_not or says_not not in said)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (Exit(status=signal.SIGSEGV), "segmentation fault"),
        (Exit(status=signal.SIGABRT), "aborted itself"),
        (Exit(status=signal.SIGKILL), "no evidence"),
        (Exit(status=signal.SIGKILL, oom=True, peak_bytes=300 << 20), "ran out of memory"),
        (Exit(status=signal.SIGKILL, oom=True, peak_bytes=300 << 20), "300 MiB"),
        (Exit(status=signal.SIGSEGV, oom=True), "segmentation fault"),
        (Exit(status=signal.SIGKILL, why="processes"), "more processes than it may"),
        (Exit(status=signal.SIGUSR1), f"signal {int(signal.SIGUSR1)}"),
        (Exit(status=40), "signal 40"),
        (Exit(status=3 << 8), "exited with code 3"),
        (Exit(), "not known"),
    ],
)
def test_how_a_process_ended(how: Exit, says: str) -> None:
    died = exit_reason(how)
    assert says in died.reason + died.hint


def test_an_exit_status_is_read_as_the_system_writes_it() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert "code 7" in exit_reason(Exit(status=os.waitpid(pid, 0)[1])).reason


def ran(line: Line, *names: str) -> None:
    for name in names:
        run = Run(
            id=RunId(name), cell=CellId(f"c{name}"), count=1, source="", author="", started_at=0, seconds=1, parent=None
        )
        line.advance(run)


def test_the_newest_checkpoint_on_the_way_here_is_the_one_to_restore() -> None:
    line = Line()
    assert line.nearest(()) == (START, [])
    ran(line, "a", "b", "c")
    assert line.nearest({"a", "b", "c"}) == ("c", [])
    assert line.nearest({"a"}) == ("a", ["b", "c"])
    assert line.nearest(()) == (START, ["a", "b", "c"])


def test_a_line_rolled_back_is_left_behind_and_can_be_gone_back_to() -> None:
    line = Line()
    ran(line, "a", "b")
    assert line.stale("a") == {"a": False, "b": True}
    line.move("a")
    ran(line, "c")
    assert line.nearest({"a", "b"}) == ("a", ["c"])
    assert line.way(line.head) == ["c", "a"]
    assert line.stale("b") == {"a": False, "b": False, "c": True}
    assert line.stale(START) == {"a": True, "b": True, "c": True}
    line.move(START)
    assert line.nearest({"a", "b", "c"}) == (START, [])


def test_a_cheap_checkpoint_waits_for_nobody_and_a_dear_one_until_it_pays() -> None:
    line = Line()
    line.protected(0.001)
    assert line.patience() == 0
    line.protected(3)
    ran(line, "a")
    assert line.patience() > 0
    ran(line, "b", "c")
    assert line.patience() == 0


@pytest.mark.parametrize(
    ("kept", "named", "goes"),
    [
        ([], set(), None),
        (["a"], set(), None),
        (["a", "b"], set(), "a"),
        (["a", "b", "c"], {"a"}, "b"),
        (["a", "b", "c"], {"a", "b"}, "a"),
        (["a", "b"], {"b"}, "a"),
    ],
)
def test_old_checkpoints_go_first_named_ones_last_and_the_newest_never(
    kept: list[str], named: set[str], goes: str | None
) -> None:
    assert first_to_go(kept, named) == goes


def test_checkpoints_are_weighed_when_much_was_touched_or_many_were_taken() -> None:
    ledger = Ledger()
    much = (16 << 20) // os.sysconf("SC_PAGE_SIZE")
    ledger.weighed(2 * much, 3)
    assert not ledger.due(2 * much + 1, 4)
    assert ledger.due(3 * much, 4)
    assert ledger.due(2 * much + 1, 30)
    assert not ledger.due(1, 4) and ledger.due(much, 4)  # a woken process counts from 0 again
    ledger.stale()
    assert ledger.due(2 * much + 1, 4)


@pytest.mark.parametrize("name", ["main", "a b", "data.2026", "épreuve", "x" * 100, "a+b,c-d_e"])
def test_names_that_are_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 101, "a/b", "a\\b", " a", "a ", "a\n", "\x00", "..", "cell", "a?b", "a%20", "{x}"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(Refused):
        check_name(name)


@pytest.mark.parametrize("timeout", [0, -1, 101, math.nan, math.inf, -math.inf])
def test_timeouts_that_are_refused(timeout: float) -> None:
    with pytest.raises(Refused, match="max_timeout"):
        LIMITS.check_timeout(timeout)


def test_a_timeout_left_out_is_the_default() -> None:
    assert LIMITS.check_timeout(None) == 30 and LIMITS.check_timeout(0.001) == 0.001


@pytest.mark.parametrize(
    ("code", "says"), [("", "empty"), ("\x00", "NUL"), ("'\ud800'", "surrogate"), ("é" * 6, "12 bytes")]
)
def test_code_that_is_refused(code: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        LIMITS.check_code(code)


def test_a_change_shows_at_every_address_of_its_cell() -> None:
    book = Notebook(id=NotebookId("n"), name="a b", owner=LOCAL, runtime="python", created_at=0)
    found = addresses(Change(notebook=book, cell=CellId("c1"), number=3))
    for uri in ("notebook://a%20b/cells", "notebook://current/info", "notebook://a%20b/cell/c1", "notebook://cell/3"):
        assert uri in found
