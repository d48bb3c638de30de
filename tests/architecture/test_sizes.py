"""A module and a function stay small enough to read in one go, and each module says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {place: len(text.splitlines()) for place, text in modules()}
    assert {place: lines for place, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    lengths = {
        f"{place}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for place, text in modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {place: lines for place, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_every_module_begins_by_saying_what_it_is() -> None:
    silent = [
        place
        for place, text in modules()
        if not ast.get_docstring(ast.parse(text)) and not (place.endswith("__init__.py") and not text.strip())
    ]
    assert silent == []


def modules() -> Iterator[tuple[str, str]]:
    paths = sorted(SOURCE.rglob("*.py"))
    assert paths, f"no modules under {SOURCE}"
    return ((str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8")) for path in paths)
