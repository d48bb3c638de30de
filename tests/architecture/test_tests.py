"""Where test code lives: helpers in tests/support, and no test that depends on another test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PYTHON = [path for folder in (TESTS, ROOT / "bench") for path in sorted(folder.rglob("*.py"))]

OUTSIDE_SUPPORT = {
    "corpus": "the notebooks of the corpus, with the code that reads them",
    "conformance": "a program: `make conformance` runs it",
    "wasm/elsewhere": "a program and the sitecustomize that Python loads for it from this folder",
}
"""Folders of modules that are neither tests nor helpers, with the reason."""


def imported(source: str, package: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """Each module that the source imports, with its line; `from a import b` counts as `a` and as `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def programs(source: str) -> Iterator[tuple[int, str]]:
    """Each string of the source that is itself Python code with an import, such as one for `python -c`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
            for line in node.value.splitlines():
                statement = line.strip().partition(";")[0]
                if statement.startswith(("from tests", "import tests")):
                    yield node.lineno, statement


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text("utf-8")
    yield from imported(source, path.relative_to(ROOT).parent.parts)
    for line, statement in programs(source):
        yield from ((line, module) for _, module in imported(statement))


def is_test_module(module: str) -> bool:
    """Whether pytest collects or loads this module of ours; a function whose name starts with `test_` is no module."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path.exists() and path.name.startswith(("test_", "conftest"))


def test_no_module_imports_a_test_or_a_conftest() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {module}. Move what it needs to tests/support."
        for path in PYTHON
        for line, module in imports_of(path)
        if is_test_module(module)
    ]
    assert found == [], "\n".join(found)


def test_helpers_live_in_support() -> None:
    allowed = [TESTS / "support", *(TESTS / folder for folder in OUTSIDE_SUPPORT)]
    found = [
        f"{path.relative_to(ROOT)} is neither a test nor a conftest. Move it to tests/support."
        for path in PYTHON
        if path.is_relative_to(TESTS)
        and not path.name.startswith(("test_", "conftest"))
        and not (path.name == "__init__.py" and not ast.parse(path.read_text("utf-8")).body[1:])
        and not any(path.is_relative_to(folder) for folder in allowed)
    ]
    assert found == [], "\n".join(found)


def test_support_and_conftests_define_no_tests() -> None:
    found = [
        f"{path.relative_to(ROOT)} defines {node.name}. A test belongs in a test_*.py file."
        for path in PYTHON
        if path.name == "conftest.py" or path.is_relative_to(TESTS / "support")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    ]
    assert found == [], "\n".join(found)


def test_folders_outside_support_exist() -> None:
    assert [folder for folder in OUTSIDE_SUPPORT if not (TESTS / folder).is_dir()] == []
