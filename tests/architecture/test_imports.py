"""What the packages without dependencies, worker and core may import; import-linter can only list what is forbidden."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True, kw_only=True)
class Allowed:
    ours: tuple[str, ...]
    libraries: frozenset[str] = frozenset()
    inside_functions: frozenset[str] = frozenset()  # loaded only when a cell already uses the library


LATE = frozenset({"IPython", "PIL", "comm", "ipywidgets", "matplotlib", "vl_convert"})

JUPYTER = frozenset(
    {"httpx2", "jupyter_client", "jupyter_server", "pycrdt", "tornado", "traitlets", "websockets", "zmq"}
)

FOLDERS = {
    "clients": Allowed(ours=("quire.clients",), libraries=JUPYTER),
    "snapshot_format": Allowed(ours=("quire.snapshot_format", "quire.platform_compat")),
    "tool_descriptions": Allowed(ours=("quire.tool_descriptions",)),
    "wire": Allowed(ours=("quire.wire",)),
    "safe_open": Allowed(ours=("quire.safe_open", "quire.platform_compat")),
    "os_sandbox": Allowed(ours=("quire.os_sandbox",)),
    "worker": Allowed(
        ours=("quire.os_sandbox", "quire.snapshot_format", "quire.tool_descriptions", "quire.wire", "quire.worker"),
        inside_functions=LATE,
    ),
    "worker/ipython": Allowed(
        ours=("quire.wire", "quire.worker"), libraries=frozenset({"IPython", "traitlets"}), inside_functions=LATE
    ),
    "core": Allowed(
        ours=(
            "quire.core",
            "quire.safe_open",
            "quire.platform_compat",
            "quire.tool_descriptions.tools",
            "quire.wire.messages",
            "quire.wire.relay",
        ),
        libraries=frozenset({"anyio"}),
    ),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    apart = [SOURCE / "quire" / other for other in FOLDERS if other.startswith(f"{folder}/")]
    every = sorted((SOURCE / "quire" / folder).rglob("*.py"))
    paths = [path for path in every if not any(other in path.parents for other in apart)]
    assert paths, f"no modules in quire/{folder}"
    refused = [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for path in paths
        for name, line, at_top in imports(path)
        if not may_import(FOLDERS[folder], name, at_top=at_top)
    ]
    assert refused == []


@pytest.mark.parametrize(
    ("folder", "name", "at_top", "expected"),
    [
        ("wire", "json", True, True),
        ("wire", "quire.core.model", True, False),
        ("wire", "anyio", True, False),
        ("worker", "quire.wire.frames", True, True),
        ("worker", "matplotlib.backend_bases", True, False),
        ("worker", "matplotlib.backend_bases", False, True),
        ("core", "anyio.abc", True, True),
        ("core", "quire.wire.frames", True, False),
        ("core", "quire.wire", True, False),
        ("core", "pydantic", False, False),
    ],
)
def test_the_rule_tells_allowed_from_refused(folder: str, name: str, at_top: bool, expected: bool) -> None:
    assert may_import(FOLDERS[folder], name, at_top=at_top) is expected


def may_import(allowed: Allowed, name: str, *, at_top: bool) -> bool:
    package = name.partition(".")[0]
    if package == "quire":
        return any(name == ours or name.startswith(ours + ".") for ours in allowed.ours)
    return (
        package in sys.stdlib_module_names
        or package in allowed.libraries
        or (package in allowed.inside_functions and not at_top)
    )


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Each imported module's full name, its line, and whether it loads with its importer."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {inner for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                found = [full_name(module, alias.name) for alias in names]
            case ast.ImportFrom():
                found = ["quire.<relative import>"]  # written out everywhere, so that a search finds it
            case _:
                continue
        for name in found:
            yield name, node.lineno, node not in late


def full_name(module: str, name: str) -> str:
    """`from quire.wire import messages` imports the module quire.wire.messages, not all of quire.wire."""
    place = SOURCE.joinpath(*module.split("."), name)
    return f"{module}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else module


def test_a_server_starts_without_libraries_that_only_some_calls_need() -> None:
    code = "import sys, quire.cli, quire.compose, quire.frontends.mcp.stdio, quire.frontends.http.serve\n"
    code += "print([name for name in ('jsonschema', 'prometheus_client') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
