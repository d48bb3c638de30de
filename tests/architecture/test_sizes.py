"""Modules, functions and classes stay small enough to read in one go, and each module says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
MOST_METHODS = 13
MOST_DEPENDENCIES = 7
LARGER_CLASSES = {  # each with the reason
    "quire/clients/jupyter/documents/file_documents.py FileDocument": "implements Document",
    "quire/clients/jupyter/rooms/shared_notebook.py SharedNotebook": "all that one Y document can do",
    "quire/core/capabilities/gateway.py CapabilityGateway": "eight services meet in a call of a capability",
    "quire/core/ports/jupyter.py Jupyter": "what tools of the jupyter set need of Jupyter servers",
    "quire/core/ports/kernel.py Kernel": "what a runtime can do with one kernel",
    "quire/frontends/python/__init__.py Notebook": "the Python API",
    "quire/runtimes/jupyter/directory.py JupyterDirectory": "implements Jupyter",
    "quire/runtimes/jupyter/kernel.py JupyterKernel": "implements Kernel",
    "quire/runtimes/python/kernel.py PythonKernel": "implements Kernel",
    "quire/runtimes/python/runtime.py PythonRuntime": "its parameters are settings",
    "quire/runtimes/wasm/host/javascript/guest.py JavaScriptGuest": "its parameters are settings",
    "quire/runtimes/wasm/host/javascript/values.py Values": "the functions of one engine's values",
    "quire/runtimes/wasm/kernel.py WasmKernel": "implements Kernel",
    "quire/runtimes/wasm/runtime.py WasmRuntime": "its parameters are settings",
    "quire/stores/routing.py RoutingNotebooks": "implements NotebookStore",
    "quire/worker/ipython/shell.py ZMQInteractiveShell": "methods of IPython's class",
    "quire/worker/snapshot/lenient_loading.py LenientUnpickler": "methods of pickle's class",
}


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


def test_classes_have_few_public_methods_and_dependencies() -> None:
    counts = {
        f"{place} {node.name}": (len(public_methods(node)), len(dependencies(node)))
        for place, text in modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }
    larger = {
        name for name, (methods, needed) in counts.items() if methods > MOST_METHODS or needed > MOST_DEPENDENCIES
    }
    assert larger == set(LARGER_CLASSES)


def public_methods(node: ast.ClassDef) -> list[str]:
    """Without properties."""
    return [
        method.name
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and not any("property" in ast.dump(decorator) for decorator in method.decorator_list)
    ]


def dependencies(node: ast.ClassDef) -> list[str]:
    """The parameters of the constructor."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            return [argument.arg for argument in (*method.args.args[1:], *method.args.kwonlyargs)]
    return []


def modules() -> Iterator[tuple[str, str]]:
    paths = sorted(SOURCE.rglob("*.py"))
    assert paths, f"no modules under {SOURCE}"
    return ((str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8")) for path in paths)
