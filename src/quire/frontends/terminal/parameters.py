"""Parameters of a run, as in papermill: typed by their form and set in a cell of their own. Pure."""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.model import CellKind, NewCell

Value = str | int | float | bool | None

_WORDS: dict[str, Value] = {
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "None": None,
    "null": None,
}
_DEFAULTS, _GIVEN = "parameters", "injected-parameters"


def parse(given: Sequence[str]) -> dict[str, Value]:
    """Values from NAME=VALUE texts. If a name is given twice, the later value counts."""
    values = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals:
            raise InvalidRequest(f"A parameter is NAME=VALUE; got {each!r}. Nothing was run.")
        if not name.isidentifier() or keyword.iskeyword(name):
            raise InvalidRequest(f"{name!r} cannot name a parameter: it is no Python name. Nothing was run.")
        values[name] = _value(text)
    return values


def _value(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def injected(cells: Sequence[NewCell], values: dict[str, Value]) -> list[NewCell]:
    """The cells with one that sets the values: it replaces an earlier one, else follows the defaults, else is first."""
    if not values:
        return list(cells)
    source = "\n".join(["# Parameters", *(f"{name} = {_literal(value)}" for name, value in values.items())])
    there = _first(cells, _GIVEN)
    if there is not None:
        given = replace(cells[there], source=source, run=None)
        return [*cells[:there], given, *cells[there + 1 :]]
    defaults = _first(cells, _DEFAULTS)
    at = 0 if defaults is None else defaults + 1
    return [*cells[:at], NewCell(source=source, metadata={"tags": [_GIVEN]}), *cells[at:]]


def _literal(value: Value) -> str:
    finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if finite else f"float({str(value)!r})"


def doubts(cells: Sequence[NewCell], values: dict[str, Value]) -> list[str]:
    """Warnings: parameters that the document does not name."""
    if not values:
        return []
    defaults = _first(cells, _DEFAULTS)
    if defaults is None:
        return [f"No cell is tagged {_DEFAULTS!r}; the parameters are set in a cell at the top."]
    named = _assigned(cells[defaults].source)
    unknown = [name for name in values if named is not None and name not in named]
    return [f"The cell tagged {_DEFAULTS!r} does not set {name!r}; it is passed anyway." for name in unknown]


def _assigned(source: str) -> set[str] | None:
    """The names a cell sets; None if it is not plain Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    targets = [each for each in body if isinstance(each, ast.Assign | ast.AnnAssign)]
    found = (node for each in targets for node in ast.walk(each))
    return {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _first(cells: Sequence[NewCell], tag: str) -> int | None:
    return next((n for n, cell in enumerate(cells) if cell.kind is CellKind.CODE and tagged(cell.metadata, tag)), None)


def tagged(metadata: dict[str, Any], tag: str) -> bool:
    tags = metadata.get("tags")
    return isinstance(tags, list) and tag in tags
