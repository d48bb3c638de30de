"""What a cell brings into the namespace."""

from __future__ import annotations

import ast
import contextlib
import weakref
from typing import Any

from quire.worker.execution.tracking import BindingTracker, bound_names, imports_and_functions


class Book:
    """A namespace in which cells run, watched."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self.makers = BindingTracker()

    def run(self, run_id: str, code: str) -> dict[str, str]:
        self.makers.before_run(self.namespace)
        with contextlib.suppress(ZeroDivisionError):
            exec(code, self.namespace)
        self.makers.after_run(self.namespace, run_id)
        return {name: run for name, run in self.makers.makers.items() if not name.startswith("__")}


def test_last_binding_run_is_recorded() -> None:
    book = Book()
    assert book.run("r1", "a = object()\nb = []") == {"a": "r1", "b": "r1"}
    assert book.run("r2", "b.append(1)\nc = a") == {"a": "r1", "b": "r1", "c": "r2"}
    assert book.run("r3", "b = [2]\ndef f(): pass") == {"a": "r1", "b": "r3", "c": "r2", "f": "r3"}
    assert book.run("r4", "a = a") == {"a": "r1", "b": "r3", "c": "r2", "f": "r3"}


def test_deleted_name_is_forgotten_until_bound_again() -> None:
    book = Book()
    book.run("r1", "a, b = object(), object()")
    assert book.run("r2", "del a") == {"b": "r1"}
    assert book.run("r3", "a = object()") == {"a": "r3", "b": "r1"}


def test_failed_run_counts_for_its_bindings() -> None:
    book = Book()
    assert book.run("r1", "a = object()\n1 / 0\nb = 1") == {"a": "r1"}


def test_values_are_neither_kept_nor_called() -> None:
    book = Book()
    book.run(
        "r1",
        "class Hostile:\n"
        "    def __eq__(self, other): raise SystemExit\n"
        "    def __hash__(self): raise SystemExit\n"
        "    def __getattribute__(self, name): raise SystemExit\n"
        "a = Hostile()",
    )
    seen = weakref.ref(book.namespace["a"])
    assert book.run("r2", "b = a") == {"Hostile": "r1", "a": "r1", "b": "r2"}
    book.makers.before_run(book.namespace)
    book.namespace.pop("b")
    book.namespace.pop("a")
    assert seen() is None


def test_names_other_than_str_are_ignored() -> None:
    book = Book()
    assert book.run("r1", "globals()[1] = 2\na = object()") == {"a": "r1"}


def test_bindings_are_restored_after_a_restart() -> None:
    value = object()
    makers = BindingTracker({"a": "r1", "b": "r2"})
    makers.before_run({"a": value})
    makers.after_run({"a": value}, "r9")
    assert makers.makers == {"a": "r1"}


def test_imports_and_functions_come_from_the_source() -> None:
    source = "import os.path as p\nfrom a import b\n@deco\ndef f(x):\n    return x\nif True:\n    import inner\n"
    imports, functions = imports_and_functions(ast.parse(source), source)
    assert imports == ["import os.path as p", "from a import b"]
    assert functions == ["@deco\ndef f(x):\n    return x"]


def test_bound_names_of_statements() -> None:
    source = (
        "import os.path, json as j\nfrom a import b as c, d\n"
        "e = f.g = h[0] = 1\ni, (k, *l) = m\nn: int = 1\no += 1\n"
        "for p in q:\n    with r as s: t = 1\n"
        "def u(v, w=1):\n    x = 1\n"
        "class Y:\n    z = 1\n"
        "[aa for aa in ab]\n"
        "if (ac := 1): pass\n"
        "match ad:\n    case [ae, *af]: pass\n    case {'k': 1, **ag}: pass\n    case ah: pass\n"
        "(lambda ai: (aj := ai))\n"
    )
    expected = "os j c d e i k l n o p s t u Y ac ae af ag ah"
    assert bound_names(ast.parse(source)) == set(expected.split())


def test_rebinding_with_the_same_id_is_recorded() -> None:
    makers, value = BindingTracker(), object()
    for run in ("r1", "r2"):
        makers.before_run({"a": value, "b": value} if run == "r2" else {})
        makers.after_run({"a": value, "b": value}, run, bound_names(ast.parse("a = same")) if run == "r2" else ())
    assert makers.makers == {"a": "r2", "b": "r1"}
