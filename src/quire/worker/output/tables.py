"""Data frames as text for a model: size, types, first and last rows; and pages of rows on request."""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import Any

from quire.wire.messages import Page, Paged

TABLE = "text/vnd.quire.table"
_TABLE_TYPES = {("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table"), ("pyarrow", "RecordBatch")}
_MAX_WHOLE_ROWS = 12  # of a table shown completely
_EDGE_ROWS = 5  # shown at the start and the end of a longer table
_MAX_COLUMNS = 20
_MAX_CELL_CHARS = 40
_MAX_PAGE_CELL_CHARS = 10_000  # on a page
_MAX_PAGE_CHARS = 1_000_000
_MAX_TABLES = 200  # that pages can be read of

_tables: dict[str, weakref.ref[Any]] = {}
_numbers = itertools.count(1)


def register_table(value: Any) -> tuple[str, str] | None:
    """A summary of the table and the name under which pages can be read, or None if it is no table."""
    if not is_table(value):
        return None
    try:
        text = summarize(value)
        name = f"table-{next(_numbers)}"
        _tables[name] = weakref.ref(value)
    except Exception:  # unusual table: show its own text
        return None
    if len(_tables) > _MAX_TABLES:
        del _tables[next(iter(_tables))]
    return text, name


def is_table(value: Any) -> bool:
    return _library(value) != ""


def read_page(request: Page) -> Paged:
    """The requested rows, or why there are none."""
    try:
        text, total = page_text(request.table, request.start, request.rows)
    except LookupError as error:
        return Paged(why_not=str(error))
    except Exception as error:
        return Paged(why_not=f"its rows cannot be read ({type(error).__name__}: {error}).")
    return Paged(text=text, total=total)


def page_text(name: str, start: int, rows: int) -> tuple[str, int]:
    """Current rows of a table as CSV, and their total number. Raises LookupError if it is gone."""
    reference = _tables.get(name)
    value = reference() if reference is not None else None
    if value is None:
        raise LookupError("it is no longer in the kernel. Run the cell again, or read the rows with code.")
    total = len(value) if not hasattr(value, "num_rows") else value.num_rows
    lines = [_csv_line(["", *_names(value)])]
    size = 0
    for label, row in zip(_labels(value, start, rows), _rows(value, start, rows), strict=False):
        lines.append(_csv_line([label, *(_truncate(_cell_text(item), _MAX_PAGE_CELL_CHARS) for item in row)]))
        size += len(lines[-1])
        if size > _MAX_PAGE_CHARS:
            lines.append(f"[the page is full: go on at {start + len(lines) - 1}]")
            break
    return "\n".join(lines), total


def summarize(value: Any) -> str:
    """Size, columns with types, and rows: all rows of a short table, the first and last of a long one."""
    names, types = _names(value), _types(value)
    total = value.num_rows if hasattr(value, "num_rows") else len(value)
    head = f"{total:,} rows x {len(names):,} columns"
    shown = list(range(min(len(names), _MAX_COLUMNS)))
    columns = ", ".join(f"{_cell(names[index])} {types[index]}" for index in shown)
    left_out = f", … {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    lines = [f"{head}: {columns}{left_out}" if names else head]
    if total <= _MAX_WHOLE_ROWS:
        lines += _table(value, 0, total, len(shown))
    else:
        lines += _table(value, 0, _EDGE_ROWS, len(shown))
        lines.append(f"… {total - 2 * _EDGE_ROWS:,} rows more …")
        lines += _table(value, total - _EDGE_ROWS, _EDGE_ROWS, len(shown))
    return "\n".join(lines)


def _table(value: Any, start: int, rows: int, columns: int) -> list[str]:
    return [
        " | ".join([label, *(_cell(item) for item in row[:columns])])
        for label, row in zip(_labels(value, start, rows), _rows(value, start, rows), strict=False)
    ]


def _library(value: Any) -> str:
    """The library of a table; "" for other values."""
    classes = ((cls.__module__.partition(".")[0], cls.__name__) for cls in type(value).__mro__)
    return next((library for library, name in classes if (library, name) in _TABLE_TYPES), "")


def _names(value: Any) -> list[str]:
    match _library(value):
        case "pyarrow":
            return list(value.schema.names)
        case "pandas":
            return [str(item) if not isinstance(item, tuple) else ".".join(map(str, item)) for item in value.columns]
        case _:
            return list(value.columns)


def _types(value: Any) -> list[str]:
    if _library(value) == "pyarrow":
        return [str(item) for item in value.schema.types]
    return [str(item) for item in value.dtypes]


def _labels(value: Any, start: int, rows: int) -> list[str]:
    if _library(value) == "pandas":
        labels = value.index[start : start + rows]
        return [".".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in labels]
    return [str(index) for index in range(start, start + rows)]


def _rows(value: Any, start: int, rows: int) -> list[list[Any]]:
    match _library(value):
        case "pyarrow":
            part = value.slice(start, rows)
            return [list(row) for row in zip(*(column.to_pylist() for column in part.columns), strict=True)]
        case "pandas":
            return [list(row) for row in value.iloc[start : start + rows].itertuples(index=False, name=None)]
        case _:
            return [list(row) for row in value.slice(start, rows).rows()]


def _cell(value: Any) -> str:
    return _truncate(" ".join(_cell_text(value).split()), _MAX_CELL_CHARS)


def _truncate(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _cell_text(value: Any) -> str:
    if type(value) is float or type(value).__name__ in ("float64", "float32"):
        return f"{value:.6g}"
    pandas = sys.modules.get("pandas")
    if value is None or (pandas is not None and value is pandas.NA):
        return "null"
    return str(value)


def _csv_line(cells: list[str]) -> str:
    return ",".join(
        '"' + item.replace('"', '""') + '"' if any(mark in item for mark in ',"\n\r') else item for item in cells
    )
