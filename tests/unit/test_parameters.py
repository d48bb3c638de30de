"""Parameters of a run: what their text means, and the cell they are put into."""

from __future__ import annotations

import math
from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.model import CellId, CellKind, NewCell
from quire.frontends.terminal import parameters


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("True", True),
        ("true", True),
        ("False", False),
        ("false", False),
        ("None", None),
        ("null", None),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("", ""),
        ("text", "text"),
        ("TRUE", "TRUE"),
        ("0x10", "0x10"),
        ("2026-11-15", "2026-11-15"),
        ("[1, 2]", "[1, 2]"),
        ("a=b", "a=b"),
        ('it\'s "so"\\n', 'it\'s "so"\\n'),
        ("two\nlines", "two\nlines"),
        ("ünï 日本 \U0001f600", "ünï 日本 \U0001f600"),
        ("\udc80", "\udc80"),  # a byte of the command line that is not UTF-8
        ("'''; import os; '''", "'''; import os; '''"),
    ],
)
def test_a_value_is_typed_by_how_it_looks_and_arrives_as_it_is(text: str, value: Any) -> None:
    values = parameters.parse([f"name={text}"])
    assert values == {"name": value} and type(values["name"]) is type(value)
    (cell,) = parameters.injected([], values)
    cell.source.encode("utf-8")
    assert run(cell.source)["name"] == value


def test_a_value_that_is_no_number_arrives_as_such() -> None:
    (cell,) = parameters.injected([], parameters.parse(["name=nan"]))
    assert math.isnan(run(cell.source)["name"])


def run(source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace


@pytest.mark.parametrize("given", ["name", "=1", "1a=1", "a b=1", "a.b=1", "class=1", "a;b=1", " a=1"])
def test_what_python_cannot_name_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="Nothing was run"):
        parameters.parse([given])


def test_of_two_with_one_name_the_later_counts() -> None:
    assert parameters.parse(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}


def cell(source: str, *tags: str, **more: Any) -> NewCell:
    return NewCell(source=source, metadata={"tags": list(tags)} if tags else {}, **more)


TEXT = cell("# Title", "parameters", kind=CellKind.MARKDOWN)  # only code has parameters
DEFAULTS = cell("a = 1", "parameters")
REST = cell("print(a)")
OLD = cell("# Parameters\na = 7", "injected-parameters", id=CellId("old"))
NEW = "# Parameters\na = 2"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [NEW]),
        ([REST], [NEW, REST.source]),
        ([TEXT, REST], [NEW, TEXT.source, REST.source]),
        ([TEXT, DEFAULTS, REST], [TEXT.source, DEFAULTS.source, NEW, REST.source]),
        ([DEFAULTS, REST, DEFAULTS], [DEFAULTS.source, NEW, REST.source, DEFAULTS.source]),
        ([DEFAULTS, REST, OLD], [DEFAULTS.source, REST.source, NEW]),
        ([NewCell(source="x", metadata={"tags": "parameters"})], [NEW, "x"]),
    ],
)
def test_the_cell_stands_after_the_defaults_or_first_or_where_one_was(before: list[NewCell], after: list[str]) -> None:
    cells = parameters.injected(before, {"a": 2})
    assert [each.source for each in cells] == after
    assert [parameters.tagged(each.metadata, "injected-parameters") for each in cells].index(True) == after.index(NEW)


def test_a_cell_that_is_replaced_keeps_its_id() -> None:
    assert parameters.injected([OLD], {"a": 2})[0].id == "old"


def test_without_parameters_the_cells_stay_as_they_are() -> None:
    assert parameters.injected([DEFAULTS, OLD], {}) == [DEFAULTS, OLD]


@pytest.mark.parametrize(
    ("source", "doubted"),
    [
        ("a = 1", []),
        ("a: int = 1", []),
        ("a, b = 1, 2", []),
        ("b = 1", ["a"]),
        ("b = a", ["a"]),
        ("print(a == 1)", ["a"]),
        ("%config x\nb = 1", []),  # not plain Python: who knows
    ],
)
def test_a_parameter_that_the_defaults_do_not_set_is_doubted(source: str, doubted: list[str]) -> None:
    said = parameters.doubts([cell(source, "parameters")], {"a": 2})
    assert [f"{name!r}" in sentence for name, sentence in zip(doubted, said, strict=True)] == [True] * len(doubted)


def test_defaults_that_are_not_there_are_said_once() -> None:
    assert len(parameters.doubts([REST], {"a": 2, "b": 3})) == 1
    assert parameters.doubts([REST], {}) == []
