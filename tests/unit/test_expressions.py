"""Cells that are one plain expression run in one step from their text: which are, and that no other does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from quire.worker.execution import event_loop
from quire.worker.execution.evaluation import Evaluation


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    values: list[Any] = []
    monkeypatch.setattr(sys, "displayhook", values.append)
    yield values


async def later() -> str:
    return "later"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1+1", 2),
        ("x", [1, 2]),
        ("x[0]", 1),
        ("len(x) # so many", 2),
        ("x, 1", ([1, 2], 1)),
        ("[each for each in x]", [1, 2]),
        ("'a' if x else 'b'", "a"),
        ("notx + 1", 2),
        ("str(await later())", "later"),
        ("f'{x}'", "[1, 2]"),
    ],
)
def test_expression_is_run_and_shown(shown: list[Any], source: str, value: Any) -> None:
    evaluation = Evaluation({"x": [1, 2], "notx": 1, "later": later})
    assert evaluation.run_expression(source, "<cell 1>") and shown == [value]
    if event_loop.existing() is not None:
        event_loop.existing().close()


@pytest.mark.parametrize(
    "source",
    [
        *("x = 1", "x: int", "x += 1", "(x := 1)", "import os", "del x", "pass", "global x", "assert (x, 1)"),
        *("x;", "x\nx", "x\rx", "x\n", " x", "", "# x", "def f(): pass", "lambda: 1", "await x"),
        *("%time x", "!ls", "x?", "?x", "x!", "print x", "ls -l /", "x is 1", "'\\d'", "1 +", "("),
    ],
)
def test_other_code_is_not_run(shown: list[Any], source: str) -> None:
    names: dict[str, Any] = {"x": [1, 2]}
    assert not Evaluation(names).run_expression(source, "<cell 1>")
    assert shown == [] and names == {"x": [1, 2]}


def test_error_has_the_expressions_line(shown: list[Any]) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        Evaluation({}).run_expression("1 / 0", "<cell 1>")
    last = raised.traceback[-1].frame.code.raw
    assert (last.co_filename, last.co_name) == ("<cell 1>", "<module>") and raised.traceback[-1].lineno == 0
