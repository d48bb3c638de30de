"""The most telling line of a cell, for a list of cells. Pure."""

from __future__ import annotations

import re

from quire.core.model import Cell, CellKind
from quire.core.runs.model_text import escape_control_characters

_MAX_CHARS = 10_000  # of a cell that are searched
_LOW = (  # lines that are shown only if there is no other, in order of preference
    re.compile(r"@"),  # a decorator
    re.compile(r"import\b|from\s+\S+\s+import\b"),
    re.compile(r"%|!pip3?\s"),
    re.compile(r"#|//"),  # a comment in Python, in JavaScript
)
_IMPORT = _LOW[1]


def headline(cell: Cell) -> str:
    """The first statement of code, or else its first import, magic or comment. For other cells the first line. A cell
    magic is put before the line: `%%time df.sum()`."""
    lines = [line.strip() for line in escape_control_characters(cell.source[:_MAX_CHARS]).splitlines()]
    lines = [line for line in lines if line]
    if not lines or cell.kind is not CellKind.CODE:
        return next(iter(lines), "")
    if lines[0].startswith("%%"):
        return f"{lines[0]} {_best(lines[1:])}".rstrip()
    return _best(lines)


def _best(lines: list[str]) -> str:
    """The first line with the best rank."""
    ranked = [(_rank(line), at, line) for at, line in enumerate(_beginnings(lines))]
    return min(ranked)[2] if ranked else ""


def _rank(line: str) -> int:
    return next((rank for rank, kind in enumerate(_LOW, 1) if kind.match(line)), 0)


def _beginnings(lines: list[str]) -> list[str]:
    """The lines without continuation lines of imports."""
    found, inside = [], ""
    for line in lines:
        if not inside:
            found.append(line)
        if inside == ")":
            inside = "" if ")" in line else inside
        elif inside or _IMPORT.match(line):
            inside = ")" if "(" in line and ")" not in line else "\\" if line.endswith("\\") else ""
    return found
