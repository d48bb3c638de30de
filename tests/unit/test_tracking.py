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


def test_a_name_was_made_by_the_run_that_bound_it_last() -> None:
    book = Book()
    assert book.run("r1", "a = object()\nb = []") == {"a": "r1", "b": "r1"}
    assert book.run("r2", "b.append(1)\nc = a") == {"a": "r1", "b": "r1", "c": "r2"}
    assert book.run("r3", "b = [2]\ndef f(): pass") == {"a": "r1", "b": "r3", "c": "r2", "f": "r3"}
    assert book.run("r4", "a = a") == {"a": "r1", "b": "r3", "c": "r2", "f": "r3"}


def test_a_name_that_is_gone_has_no_maker_and_one_that_came_back_has_a_new_one() -> None:
    book = Book()
    book.run("r1", "a, b = object(), object()")
    assert book.run("r2", "del a") == {"b": "r1"}
    assert book.run("r3", "a = object()") == {"a": "r3", "b": "r1"}


def test_what_a_run_that_failed_bound_before_is_its_own() -> None:
    book = Book()
    assert book.run("r1", "a = object()\n1 / 0\nb = 1") == {"a": "r1"}


def test_no_value_is_kept_alive_and_none_is_asked_anything() -> None:
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


def test_names_that_are_no_text_are_passed_over() -> None:
    book = Book()
    assert book.run("r1", "globals()[1] = 2\na = object()") == {"a": "r1"}


def test_what_was_known_before_a_restart_is_known_again() -> None:
    value = object()
    makers = BindingTracker({"a": "r1", "b": "r2"})
    makers.before_run({"a": value})
    makers.after_run({"a": value}, "r9")
    assert makers.makers == {"a": "r1"}


def test_imports_and_functions_are_read_from_the_text() -> None:
    source = "import os.path as p\nfrom a import b\n@deco\ndef f(x):\n    return x\nif True:\n    import inner\n"
    imports, functions = imports_and_functions(ast.parse(source), source)
    assert imports == ["import os.path as p", "from a import b"]
    assert functions == ["@deco\ndef f(x):\n    return x"]


def test_names_a_cells_own_statements_bind() -> None:
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


def test_a_name_the_code_binds_is_made_anew_even_where_the_value_has_the_same_id() -> None:
    makers, value = BindingTracker(), object()
    for run in ("r1", "r2"):
        makers.before_run({"a": value, "b": value} if run == "r2" else {})
        makers.after_run({"a": value, "b": value}, run, bound_names(ast.parse("a = same")) if run == "r2" else ())
    assert makers.makers == {"a": "r2", "b": "r1"}
