"""In, Out and the underscores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quire.worker.execution import history
from quire.worker.execution.history import History, is_kernel_name


class Kernel:
    """A namespace and its history; a cell is its source and, where it has one, its value."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.history = History(self.names)
        self.count = 0

    def cell(self, source: str, *value: Any) -> None:
        self.count += 1
        self.history.begin_cell(self.count, source)
        for each in value:
            self.history.add_result(each, repr(each))


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    yield Kernel()


def test_source_and_value_are_stored_by_number(kernel: Kernel) -> None:
    kernel.cell("'a'", "a")
    kernel.cell("x = 1")
    kernel.cell("'c'", "c")
    assert kernel.names["In"] == ["", "'a'", "x = 1", "'c'"] and kernel.names["Out"] == {1: "a", 3: "c"}
    assert (kernel.names["_1"], kernel.names["_3"], kernel.names["_i2"]) == ("a", "c", "x = 1")
    assert "_2" not in kernel.names
    assert kernel.names["_ih"] is kernel.names["In"] and kernel.names["_oh"] is kernel.names["Out"]


def test_underscores_hold_the_last_three_values_and_sources(kernel: Kernel) -> None:
    kernel.cell("1", 1)
    assert [kernel.names[name] for name in ("_", "__", "___")] == [1, "", ""]
    for number in (2, 3, 4):
        kernel.cell(str(number), number)
    assert [kernel.names[name] for name in ("_", "__", "___")] == [4, 3, 2]
    assert [kernel.names[name] for name in ("_i", "_ii", "_iii")] == ["3", "2", "1"]  # of the cells before this one


def test_last_of_several_values_is_stored(kernel: Kernel) -> None:
    kernel.cell("1\n2", 1, 2)
    assert kernel.names["_"] == 2 and kernel.names["__"] == 1 and kernel.names["Out"] == {1: 2}


def test_user_defined_underscore_is_not_overwritten(kernel: Kernel) -> None:
    kernel.cell("1", 1)
    kernel.names["_"] = "mine"
    kernel.cell("2", 2)
    assert kernel.names["_"] == "mine" and kernel.names["Out"][2] == 2 and kernel.names["_2"] == 2
    del kernel.names["_"]
    kernel.cell("3", 3)
    assert kernel.names["_"] == 3


def test_installed_translation_function_is_not_overwritten(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins._", str.upper, raising=False)
    kernel.cell("1", 1)
    assert "_" not in kernel.names and kernel.names["Out"] == {1: 1}


def test_out_is_not_stored_as_a_result(kernel: Kernel) -> None:
    kernel.cell("1", 1)
    kernel.cell("Out", kernel.names["Out"])
    assert kernel.names["Out"] == {1: 1} and kernel.names["_"] == 1


def test_oldest_results_are_dropped(kernel: Kernel) -> None:
    for number in range(history._MAX_RESULTS + 1):
        kernel.cell(str(number), number)
    out = kernel.names["Out"]
    assert len(out) == history._MAX_RESULTS * 4 // 5 + 1 and min(out) == history._MAX_RESULTS // 5 + 1
    assert "_1" not in kernel.names and kernel.names[f"_{min(out)}"] == out[min(out)]
    assert kernel.history.texts.keys() == out.keys()


def test_other_keys_in_out_do_not_stop_dropping(kernel: Kernel) -> None:
    kernel.names["Out"]["mine"] = kernel.names["Out"][True] = 0
    for number in range(history._MAX_RESULTS + 1):
        kernel.cell(str(number), number)
    assert kernel.names["Out"]["mine"] == 0 and len(kernel.names["Out"]) < history._MAX_RESULTS


def test_skipped_numbers_leave_gaps(kernel: Kernel) -> None:
    kernel.history.begin_cell(5, "five")
    assert kernel.names["In"] == ["", "", "", "", "", "five"]
    kernel.history.begin_cell(2, "two again")  # a rollback went back
    assert kernel.names["In"][2] == "two again" and kernel.names["In"][5] == "five"


def test_loaded_history_continues(kernel: Kernel) -> None:
    kernel.names.update({"In": ["", "a", "b"], "Out": {1: "one", 2: "two", "odd": 3}, "_": "two"})
    kernel.history.load_from_namespace()
    assert kernel.names["_1"] == "one" and kernel.names["Out"] is kernel.history.results
    kernel.count = 2
    kernel.cell("3", 3)
    assert kernel.names["_"] == 3 and kernel.names["Out"] == {1: "one", 2: "two", "odd": 3, 3: 3}
    assert kernel.names["In"] == ["", "a", "b", "3"] and kernel.names["_oh"] is kernel.names["Out"]


@pytest.mark.parametrize("spoiled", [None, 5, "text", (), [1], {"a": 1}])
def test_invalid_loaded_history_is_replaced(kernel: Kernel, spoiled: Any) -> None:
    kernel.names.update({"In": spoiled, "Out": spoiled})
    kernel.history.load_from_namespace()
    kernel.cell("1", 1)
    assert kernel.names["Out"][1] == 1 and kernel.names["In"][1] == "1"


def test_deleted_history_names_are_ignored(kernel: Kernel) -> None:
    kernel.names.clear()
    kernel.cell("1", 1)
    assert kernel.names["_"] == 1 and kernel.names["_1"] == 1


def test_kernel_names_are_recognized() -> None:
    assert all(map(is_kernel_name, ("In", "Out", "_i", "_ii", "__", "___", "_1", "_i12", "_oh", "get_ipython")))
    assert not any(map(is_kernel_name, ("x", "_x", "_1a", "_i1_", "In2", "____", "_", "i1")))


def test_long_result_text_is_shortened(kernel: Kernel) -> None:
    kernel.cell("x", "y" * 1_000_000)
    assert len(kernel.history.texts[1]) <= 2_000
