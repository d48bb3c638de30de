"""Each kind of object, made in one process and loaded in another: right, or a tombstone that says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.object_kinds import KINDS, Kind
from tests.support.snapshot_stream import ROOT, SECONDS


@pytest.fixture(scope="module")
def warm() -> Iterator[Callable[[Kind], dict[str, Any]]]:
    """A process that has the libraries and never sees a cell: it forks one to make, and others to load."""
    code = "from tests.support.object_kind_process import serve; serve()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin and process.stdout
    asked, answers = process.stdin, process.stdout

    def ask(kind: Kind) -> dict[str, Any]:
        asked.write(f"{KINDS.index(kind)}\n")
        asked.flush()
        return dict(json.loads(answers.readline()))

    yield ask
    asked.close()
    process.wait(SECONDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_comes_back_right_or_says_why_not(kind: Kind, warm: Callable[[Kind], dict[str, Any]]) -> None:
    if kind.needs:
        pytest.importorskip(kind.needs)
    answer = warm(kind)
    assert answer["trouble"] == ""
    if kind.expected == "kept":
        assert answer["lost"] == [] or kind.name == "a list with one bad element"
        assert answer["plain"] == "right"
        assert answer["tolerant"] == "right"
    else:
        assert [lost for lost in answer["lost"] if kind.why in lost], answer
        assert answer["plain"].startswith("GoneError: it was a") or answer["plain"].startswith(
            "GoneError: it was thread"
        )
        assert answer["tolerant"] == answer["plain"]


def test_at_least_114_kinds_are_kept_and_each_name_is_there_once() -> None:
    assert sum(kind.expected == "kept" for kind in KINDS) >= 114
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 130


# The warm process
