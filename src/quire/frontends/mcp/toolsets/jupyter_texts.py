"""Answers of the tool set `jupyter`, as its users know them: tables with tabs between columns. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from quire.core.model import Cell, CellKind
from quire.core.ports.jupyter import JupyterFile, JupyterKernel
from quire.core.runs.model_text import escape_control_characters

_KERNELS = ("ID", "Name", "Display_Name", "Language", "State", "Connections", "Last_Activity", "Environment")
_ENVIRONMENT = 100  # characters


def number_of(number: int, word: str) -> str:
    """As in `1 cell`; without commas, as clients of the peer know it."""
    return f"{number} {word}" + ("" if number == 1 else "s")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join("\t".join(map(str, row)) for row in (headers, *rows))


def kernels(found: Sequence[JupyterKernel]) -> str:
    if not found:
        return "No kernels found on the Jupyter server."
    rows = []
    for each in found:
        said = "; ".join(f"{name}={value}" for name, value in each.environment.items()) or "unknown"
        short = said if len(said) <= _ENVIRONMENT else f"{said[:_ENVIRONMENT]}..."
        about = (each.display_name, each.language, each.state, each.connections, each.last_activity)
        rows.append((each.id, each.spec, *(what if what != "" else "unknown" for what in about), short))
    return table(_KERNELS, rows)


def files(found: Sequence[JupyterFile], path: str, pattern: str, start: int, limit: int) -> str:
    where = path or "root"
    if pattern:
        matches = glob(pattern)
        found = [each for each in found if matches.fullmatch(each.path)]
    if not found:
        said = f"matching pattern '{pattern}' found" if pattern else "found"
        return f"No files {said} in path '{where}'"
    note = ""
    if start >= len(found):
        there = f"There is {number_of(1, 'file')}" if len(found) == 1 else f"There are {len(found)} files"
        note = f"[WARNING] {there}, none from {start} on: shown from the first.\n"
        start = 0
    end = min(start + limit, len(found)) if limit else len(found)
    rows = [(each.path, each.kind, size(each.size), moment(each.modified)) for each in found[start:end]]
    shown = f"{note}Showing {start}-{end} of {number_of(len(found), 'file')}"
    return f"{shown}\n\n{table(('Path', 'Type', 'Size', 'Last_Modified'), rows)}"


def glob(pattern: str) -> re.Pattern[str]:
    """`*` and `?` within a name, `**` over folders; a pattern without a slash means names in any folder."""
    written = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*")
    written = written.replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return re.compile(written if "/" in pattern else f"(?:.*/)?{written}")


def size(length: int | None) -> str:
    if length is None:
        return ""
    if length < 1024:
        return f"{length}B"
    return f"{length / 1024:.1f}KB" if length < 1024**2 else f"{length / 1024**2:.1f}MB"


def moment(said: str) -> str:
    """`2026-11-16T12:00:00.5Z` as `2026-11-16 12:00:00`."""
    return re.sub(r"(\.\d+)?(Z|[+-]\d\d:?\d\d)$", "", said.replace("T", " ", 1))


def brief(cells: Sequence[Cell]) -> str:
    if not cells:
        return "Notebook is empty"
    rows = [
        (cell.number, cell.kind.value, count(cell), first_line(escape_control_characters(cell.source)))
        for cell in cells
    ]
    return table(("Index", "Type", "Count", "First Line"), rows)


def detailed(cells: Sequence[Cell], most: int) -> str:
    return "\n".join(f"{head(cell)}\n\n{clipped(escape_control_characters(cell.source), most)}\n\n\n" for cell in cells)


def head(cell: Cell) -> str:
    return f"=====Cell {cell.number} | type: {cell.kind.value} | execution count: {count(cell)}====="


def clipped(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def count(cell: Cell) -> int | str:
    return (cell.run.count if cell.kind is CellKind.CODE and cell.run is not None else 0) or "N/A"


def first_line(source: str) -> str:
    lines = source.splitlines()
    if not lines:
        return ""
    return lines[0] if len(lines) == 1 else f"{lines[0]}...({number_of(len(lines) - 1, 'line')} hidden)"


def difference(before: str, after: str) -> str:
    """What an edit changed, line by line; "" where nothing did."""
    if before == after:
        return ""
    before, after = escape_control_characters(before), escape_control_characters(after)
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))
    return "\n".join(lines) if lines else f"@@ line terminators changed @@\n-{before!r}\n+{after!r}"
