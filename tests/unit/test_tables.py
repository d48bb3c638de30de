"""Data frames in few characters, and their rows."""

from __future__ import annotations

import csv
import gc
import io
from typing import Any

import pytest

from quire.worker.output import tables
from tests.support.external_programs import missing

LIBRARIES = ("pandas", "polars", "pyarrow")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        __import__(name)
    except ImportError:
        missing(name, "it is not installed")
    return name


@pytest.fixture
def pandas(science: None) -> Any:
    import pandas

    return pandas


def frame(library: str, columns: dict[str, list[Any]]) -> Any:
    import importlib

    module = importlib.import_module(library)
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


def rows_of(value: Any, start: int, rows: int) -> list[list[str]]:
    found = tables.register_table(value)
    assert found is not None
    text, _ = tables.page_text(found[1], start, rows)
    return list(csv.reader(io.StringIO(text)))


TYPES = {
    "pandas": ("int64", "float64", "str"),
    "polars": ("Int64", "Float64", "String"),
    "pyarrow": ("int64", "double", "string"),
}


def test_short_table_is_shown_completely(library: str) -> None:
    text = tables.summarize(frame(library, {"n": [1, 2], "x": [0.5, 1 / 3], "s": ["a", "b"]}))
    number, real, words = TYPES[library]
    assert text.splitlines() == [
        f"2 rows x 3 columns: n {number}, x {real}, s {words}",
        "0 | 1 | 0.5 | a",
        "1 | 2 | 0.333333 | b",
    ]


def test_long_table_shows_first_and_last_rows(library: str) -> None:
    lines = tables.summarize(frame(library, {"n": list(range(100_000))})).splitlines()
    assert lines[0].startswith("100,000 rows x 1 columns: n ")
    assert lines[1:6] == [f"{n} | {n}" for n in range(5)]
    assert lines[6] == "… 99,990 rows more …"
    assert lines[7:] == [f"{n} | {n}" for n in range(99_995, 100_000)]


def test_wide_table_shows_first_columns(library: str) -> None:
    text = tables.summarize(frame(library, {f"c{n}": [n] for n in range(1_000)}))
    first, row = text.splitlines()
    assert first.startswith("1 rows x 1,000 columns: c0 ") and first.endswith(", … 980 more")
    assert row == " | ".join(["0", *map(str, range(20))])
    assert len(text) < 1_000


def test_empty_tables(library: str) -> None:
    empty = tables.summarize(frame(library, {"n": [], "s": []}))
    assert empty.startswith("0 rows x 2 columns: n ") and "\n" not in empty
    assert tables.summarize(frame(library, {})) == "0 rows x 0 columns"


def test_huge_cells_are_truncated(library: str) -> None:
    text = tables.summarize(frame(library, {"s": ["x" * 1_000_000, "two\nlines\tand a tab"]}))
    assert len(text) < 200 and "x…" in text
    assert text.splitlines()[2] == "1 | two lines and a tab"


def test_nulls_are_shown_as_null(library: str) -> None:
    text = tables.summarize(frame(library, {"n": [1, None], "s": ["a", None]}))
    last = text.splitlines()[-1]
    assert last == ("1 | nan | nan" if library == "pandas" else "1 | null | null")  # pandas itself has no null there


def test_pages_are_valid_csv(library: str) -> None:
    strange = ['say "hi"', "a,b", "two\nlines", "", "é ☃", "\r"]
    whole = rows_of(frame(library, {"the, name": strange}), 0, 100)
    assert whole[0] == ["", "the, name"]
    assert [row[1] for row in whole[1:]] == strange


def test_pages_start_anywhere(library: str) -> None:
    value = frame(library, {"n": list(range(250))})
    assert [row[1] for row in rows_of(value, 0, 100)[1:]] == [str(n) for n in range(100)]
    assert rows_of(value, 200, 100)[1] == ["200", "200"] and len(rows_of(value, 200, 100)) == 51
    for past in (250, 10_000, 10**18):
        assert rows_of(value, past, 100) == [["", "n"]]


def test_page_shows_current_complete_cells(pandas: Any) -> None:
    value = pandas.DataFrame({"s": ["x" * 1_000]})
    found = tables.register_table(value)
    assert found is not None and found[0].count("x") < 50
    value.loc[0, "s"] = "y" * 1_000
    assert tables.page_text(found[1], 0, 1)[0].splitlines()[1] == "0," + "y" * 1_000


def test_page_size_is_limited(library: str) -> None:
    value = frame(library, {"s": ["x" * 1_000_000] * 30})
    found = tables.register_table(value)
    assert found is not None
    assert len(tables.page_text(found[1], 0, 100)[0]) < 10_000_000  # BUG 19


def test_pages_do_not_keep_a_table_alive(library: str) -> None:
    value = frame(library, {"n": [1]})
    found = tables.register_table(value)
    assert found is not None
    del value
    gc.collect()
    for gone in (found[1], "table-never"):
        with pytest.raises(LookupError, match="no longer in the kernel"):
            tables.page_text(gone, 0, 100)


def test_only_latest_tables_have_pages(pandas: Any) -> None:
    value = pandas.DataFrame({"n": [1]})
    names = [found[1] for _ in range(300) if (found := tables.register_table(value)) is not None]
    assert tables.page_text(names[-1], 0, 1)[1] == 1
    with pytest.raises(LookupError):
        tables.page_text(names[0], 0, 1)


def test_unusual_column_names(pandas: Any) -> None:
    value = pandas.DataFrame([[1, 2.0, "a"]], columns=["same", "same", 7])
    assert tables.summarize(value).splitlines() == [
        "1 rows x 3 columns: same int64, same float64, 7 str",
        "0 | 1 | 2 | a",
    ]
    odd = pandas.DataFrame([[1, 2, 3]], columns=[None, 1.5, ("a", 2)])
    assert tables.summarize(odd).splitlines()[0].startswith("1 rows x 3 columns: ")
    assert rows_of(value, 0, 9) == [["", "same", "same", "7"], ["0", "1", "2", "a"]]


def test_index_levels_are_joined(pandas: Any) -> None:
    index = pandas.MultiIndex.from_product([["a", "b"], [1, 2]])
    value = pandas.DataFrame({("x", "y"): range(4)}, index=index)
    lines = tables.summarize(value).splitlines()
    assert lines[0] == "4 rows x 1 columns: x.y int64" and lines[1:3] == ["a.1 | 0", "a.2 | 1"]


def test_date_and_duplicate_row_labels(pandas: Any) -> None:
    value = pandas.DataFrame({"n": [1, 2]}, index=pandas.to_datetime(["2026-01-01", "2026-01-01"]))
    assert [row[0] for row in rows_of(value, 0, 9)] == ["", "2026-01-01 00:00:00", "2026-01-01 00:00:00"]


def test_every_type_has_a_text(pandas: Any) -> None:
    value = pandas.DataFrame(
        {
            "when": pandas.to_datetime(["2026-01-01", None]),
            "kind": pandas.Categorical(["a", None]),
            "maybe": pandas.array([1, None], dtype="Int64"),
            "any": [{"k": [1]}, object()],
        }
    )
    first, one, two = tables.summarize(value).splitlines()
    assert "kind category" in first and "maybe Int64" in first and "any object" in first
    assert one == "0 | 2026-01-01 00:00:00 | a | 1 | {'k': [1]}"
    assert two.startswith("1 | NaT | nan | null | <object object at")


@pytest.mark.parametrize("value", [1, "text", [1], {"a": 1}, object(), int])
def test_other_values_are_no_tables(value: Any) -> None:
    assert tables.register_table(value) is None


def test_subclass_of_a_table_is_a_table(pandas: Any) -> None:
    class Mine(pandas.DataFrame):
        pass

    assert tables.register_table(Mine({"a": [1]})) is not None


def test_class_with_the_same_name_is_no_table() -> None:
    Fake = type("DataFrame", (), {"__module__": "pandas.fake"})
    assert tables.register_table(Fake()) is None


def test_table_that_raises_shows_its_own_text(pandas: Any) -> None:
    class Hostile(pandas.DataFrame):
        def __len__(self) -> int:
            raise RuntimeError("no")

    class Cell:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert tables.register_table(Hostile({"a": [1]})) is None
    assert tables.register_table(pandas.DataFrame({"a": [Cell()]})) is None
