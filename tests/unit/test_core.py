"""Decisions of the core that need no kernel."""

from __future__ import annotations

import math
import os
import signal

import pytest

from quire.core.errors import Refused
from quire.core.feed import Change
from quire.core.limits import Limits, check_name
from quire.core.model import LOCAL, CellId, CellState, Died, Notebook, NotebookId
from quire.core.active import Stop
from quire.core.outcomes import outcome
from quire.frontends.mcp.notices import addresses
from quire.runtimes.python.exits import exit_reason
from quire.wire.messages import Finished

LIMITS = Limits(
    cell_timeout=30, max_timeout=100, max_cells=10, max_code_bytes=10, max_output_bytes=10, grace=1, patience=1
)  # fmt: skip


def ended(how: str) -> Finished:
    return Finished(run="r", outcome=how)


@pytest.mark.parametrize(
    ("finished", "died", "stopping", "state", "says"),
    [
        (ended("success"), None, None, CellState.SUCCESS, ""),
        (ended("success"), None, Stop.TIMEOUT, CellState.SUCCESS, ""),
        (ended("error"), None, None, CellState.ERROR, ""),
        (ended("error"), None, Stop.TIMEOUT, CellState.TIMEOUT, "Variables are kept"),
        (ended("interrupted"), None, Stop.TIMEOUT, CellState.TIMEOUT, "larger timeout"),
        (ended("interrupted"), None, Stop.INTERRUPT, CellState.INTERRUPTED, "Variables are kept"),
        (ended("interrupted"), None, None, CellState.INTERRUPTED, "Interrupted"),
        (None, Died(reason="It burnt."), None, CellState.CRASHED, "It burnt. Variables are gone"),
        (None, Died(reason="Killed."), Stop.TIMEOUT, CellState.TIMEOUT, "did not stop when interrupted"),
        (None, Died(reason="Killed."), Stop.INTERRUPT, CellState.INTERRUPTED, "variables are gone"),
        (None, None, Stop.SHUTDOWN, CellState.INTERRUPTED, "server was stopped"),
    ],
)
def test_how_a_run_ended(
    finished: Finished | None, died: Died | None, stopping: Stop | None, state: CellState, says: str
) -> None:
    found, cause = outcome(finished, died, stopping, 5)
    assert found is state and says in cause


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (signal.SIGSEGV, "segmentation fault"),
        (signal.SIGABRT, "aborted itself"),
        (signal.SIGKILL, "no evidence"),
        (signal.SIGUSR1, f"signal {int(signal.SIGUSR1)}"),
        (3 << 8, "exited with code 3"),
        (None, "not known"),
    ],
)
def test_how_a_process_ended(status: int | None, says: str) -> None:
    died = exit_reason(status)
    assert says in died.reason + died.hint


def test_an_exit_status_is_read_as_the_system_writes_it() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert "code 7" in exit_reason(os.waitpid(pid, 0)[1]).reason


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
