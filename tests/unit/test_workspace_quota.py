"""Workspace quotas, and the outcome of runs that they stop."""

from __future__ import annotations

import pytest

from quire.core.limits.workspace_quota import WorkspaceLimits
from quire.core.model import CellState, Died
from quire.core.ports.files import FolderUsage
from quire.core.runs.active_run import StopReason
from quire.core.runs.outcome import outcome
from quire.settings import DEFAULT_TOOLSETS, TOOLSETS, BadSetting, load
from quire.wire.messages import Finished

RULES = WorkspaceLimits(bytes=10 * 2**30, files=1_000)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (FolderUsage(), ""),
        (FolderUsage(bytes=10 * 2**30, files=1_000), ""),
        (FolderUsage(bytes=10 * 2**30, files=1_000, whole=False), ""),
        (
            FolderUsage(bytes=11 * 2**30),
            "holds 11.0 GiB, over its quota of 10.0 GiB (setting limits.max_workspace_bytes)",
        ),
        (FolderUsage(bytes=11 * 2**30, whole=False), "holds at least 11.0 GiB"),
        (FolderUsage(files=1_001), "holds 1,001 files, over its quota of 1,000 (setting limits.max_workspace_files)"),
        (FolderUsage(deep=True), "nested too deeply"),
    ],
)
def test_excess_says_what_to_delete(use: FolderUsage, says: str) -> None:
    found = RULES.excess(use)
    assert (says in found) if says else not found
    assert not found or "Delete" in found


def test_zero_is_no_limit() -> None:
    assert not WorkspaceLimits(bytes=0, files=0).excess(FolderUsage(bytes=2**60, files=2**40))


@pytest.mark.parametrize("how", ["interrupted", "error"])
def test_run_over_quota_is_interrupted_with_reason(how: str) -> None:
    finished = Finished(run="1", outcome=how)
    assert outcome(finished, None, StopReason.QUOTA, 30, "it is full.") == (
        CellState.INTERRUPTED,
        "It is full.",
        "",
    )


def test_killed_run_over_quota_has_reason() -> None:
    state, cause, _ = outcome(None, Died(reason="killed"), StopReason.QUOTA, 30, "it is full.")
    assert state is CellState.INTERRUPTED and "was killed: it is full." in cause


@pytest.mark.parametrize(
    ("said", "sets"),
    [
        ("all", TOOLSETS),
        ("default", DEFAULT_TOOLSETS),
        ("default,files", (*DEFAULT_TOOLSETS, "files")),
        ("files", ("files",)),
        ("files,default", ("files", *DEFAULT_TOOLSETS)),
        ("repl,default", ("repl", "notebook", "capabilities", "timeline")),
    ],
)
def test_default_means_the_default_tool_sets(said: str, sets: tuple[str, ...]) -> None:
    assert load({"server_toolsets": said}, environ={}).server.toolsets == sets
    assert "files" not in load(environ={}).server.toolsets


def test_unknown_tool_set_is_named() -> None:
    with pytest.raises(BadSetting, match="poetry"):
        load({"server_toolsets": "default,poetry"}, environ={})
