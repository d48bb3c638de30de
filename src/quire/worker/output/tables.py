"""Data frames for a model: shape, types, head and tail in few characters, and any rows on request."""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import Any

from quire.wire.messages import Page, Paged

TABLE = "text/vnd.quire.table"
_KINDS = {
    ("pandas", "DataFrame"),
    ("polars", "DataFrame"),
    ("pyarrow", "Table"),
    ("pyarrow", "RecordBatch"),
}
_WHOLE = 12  # rows of a table that is shown whole
_ENDS = 5  # rows at either end of a longer one
_COLUMNS = 20
_CELL = 40  # characters
_LONG = 10_000  # characters of one on a page
_PAGE = 1_000_000  # characters
_KNOWN = 200  # tables that can be paged through

_tables: dict[str, weakref.ref[Any]] = {}
_numbers = itertools.count(1)


def shown(value: Any) -> tuple[str, str] | None:
    """The text that stands for a table, and the name it is known by from now on; None where it is no table."""
    if not is_table(value):
        return None
    try:
        text = compact(value)
        name = f"table-{next(_numbers)}"
        _tables[name] = weakref.ref(value)
    except Exception:  # an odd one: its own text will do
        return None
    if len(_tables) > _KNOWN:
        del _tables[next(iter(_tables))]
    return text, name


def is_table(value: Any) -> bool:
    kind = type(value)
    return any(
        (each.__module__.partition(".")[0], each.__name__) in _KINDS for each in kind.__mro__ if each is not object
    )


def paged(request: Page) -> Paged:
    """The rows that were asked for, or why there are none."""
    try:
        text, total = page(request.table, request.start, request.rows)
    except LookupError as error:
        return Paged(why_not=str(error))
    except Exception as error:
        return Paged(why_not=f"its rows cannot be read ({type(error).__name__}: {error}).")
    return Paged(text=text, total=total)


def page(name: str, start: int, rows: int) -> tuple[str, int]:
    """Rows of a table as it is now, as CSV, and how many it has. Raises LookupError where it is gone."""
    found = _tables.get(name)
    value = found() if found is not None else None
    if value is None:
        raise LookupError("it is no longer in the kernel. Run the cell again, or read the rows with code.")
    total = len(value) if not hasattr(value, "num_rows") else value.num_rows
    lines = [_csv_line(["", *_names(value)])]
    size = 0
    for label, row in zip(_labels(value, start, rows), _rows(value, start, rows), strict=False):
        lines.append(_csv_line([label, *(_cut(_full(each), _LONG) for each in row)]))
        size += len(lines[-1])
        if size > _PAGE:
            lines.append(f"[the page is full: go on at {start + len(lines) - 1}]")
            break
    return "\n".join(lines), total


def compact(value: Any) -> str:
    """Its size, each column with its type, and its rows: all of a short table, both ends of a long one."""
    names, types = _names(value), _types(value)
    total = value.num_rows if hasattr(value, "num_rows") else len(value)
    head = f"{total:,} rows x {len(names):,} columns"
    some = list(range(min(len(names), _COLUMNS)))
    columns = ", ".join(f"{_cell(names[at])} {types[at]}" for at in some)
    left_out = f", … {len(names) - len(some):,} more" if len(names) > len(some) else ""
    lines = [f"{head}: {columns}{left_out}" if names else head]
    if total <= _WHOLE:
        lines += _table(value, 0, total, len(some))
    else:
        lines += _table(value, 0, _ENDS, len(some))
        lines.append(f"… {total - 2 * _ENDS:,} rows more …")
        lines += _table(value, total - _ENDS, _ENDS, len(some))
    return "\n".join(lines)


def _table(value: Any, start: int, rows: int, columns: int) -> list[str]:
    return [
        " | ".join([label, *(_cell(each) for each in row[:columns])])
        for label, row in zip(_labels(value, start, rows), _rows(value, start, rows), strict=False)
    ]


def _home(value: Any) -> str:
    return next(
        each.__module__.partition(".")[0]
        for each in type(value).__mro__
        if (each.__module__.partition(".")[0], each.__name__) in _KINDS
    )


def _names(value: Any) -> list[str]:
    match _home(value):
        case "pyarrow":
            return list(value.schema.names)
        case "pandas":
            return [str(each) if not isinstance(each, tuple) else ".".join(map(str, each)) for each in value.columns]
        case _:
            return list(value.columns)


def _types(value: Any) -> list[str]:
    if _home(value) == "pyarrow":
        return [str(each) for each in value.schema.types]
    return [str(each) for each in value.dtypes]


def _labels(value: Any, start: int, rows: int) -> list[str]:
    if _home(value) == "pandas":
        labels = value.index[start : start + rows]
        return [".".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in labels]
    return [str(at) for at in range(start, start + rows)]


def _rows(value: Any, start: int, rows: int) -> list[list[Any]]:
    match _home(value):
        case "pyarrow":
            part = value.slice(start, rows)
            return [list(row) for row in zip(*(column.to_pylist() for column in part.columns), strict=True)]
        case "pandas":
            return [list(row) for row in value.iloc[start : start + rows].itertuples(index=False, name=None)]
        case _:
            return [list(row) for row in value.slice(start, rows).rows()]


def _cell(value: Any) -> str:
    return _cut(" ".join(_full(value).split()), _CELL)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _full(value: Any) -> str:
    if type(value) is float or type(value).__name__ in ("float64", "float32"):
        return f"{value:.6g}"
    pandas = sys.modules.get("pandas")
    if value is None or (pandas is not None and value is pandas.NA):
        return "null"
    return str(value)


def _csv_line(cells: list[str]) -> str:
    return ",".join(
        '"' + each.replace('"', '""') + '"' if any(mark in each for mark in ',"\n\r') else each for each in cells
    )
