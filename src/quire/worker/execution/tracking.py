"""What a cell adds to the namespace: imports and functions from its source, bound names from its run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Set
from typing import Any


def imports_and_functions(tree: ast.Module, source: str) -> tuple[list[str], list[str]]:
    imports: list[str] = []
    functions: list[str] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(ast.unparse(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(_source_with_decorators(node, source))
    return imports, functions


def _source_with_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> str:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


_SCOPES = frozenset(
    (
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
        *(ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    )
)
_BINDING: dict[type, Callable[[Any], tuple[str | None, ...]]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), lambda node: (node.name,)),
    **dict.fromkeys((ast.MatchAs, ast.MatchStar), lambda node: (node.name,)),
    ast.Name: lambda node: (node.id,) if type(node.ctx) is ast.Store else (),
    ast.alias: lambda node: (node.asname or node.name.partition(".")[0],),
    ast.MatchMapping: lambda node: (node.rest,),
}


def bound_names(tree: ast.Module) -> set[str]:
    """Names that the cell's own statements bind, whether or not they run."""
    names: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        kind = type(node)
        if kind in _BINDING:
            names.update(name for name in _BINDING[kind](node) if name)
        if kind not in _SCOPES:  # names bound inside belong to it
            pending += ast.iter_child_nodes(node)
    return names


class BindingTracker:
    """Records which run last bound each name. It compares ids of values, so that it keeps no value alive.

    A new value may get the id of the old one, so names that the code binds count as bound in any case.
    """

    def __init__(self, makers: dict[str, str] | None = None, ignored: Set[str] = frozenset()) -> None:
        """`ignored` are names that the kernel sets."""
        self.makers = dict(makers or {})  # run by name; the last bound comes last
        self._ignored = ignored
        self._ids_before: dict[str, int] = {}

    def before_run(self, namespace: dict[str, Any]) -> None:
        """Called before a run."""
        self._ids_before = _ids(namespace, self._ignored)

    def after_run(self, namespace: dict[str, Any], run_id: str, assigned: Collection[str] = ()) -> None:
        """Called after a run; `assigned` are the names that its code binds."""
        now = _ids(namespace, self._ignored)
        bound = {name: run_id for name, value in now.items() if self._ids_before.get(name) != value or name in assigned}
        unchanged = {name: run for name, run in self.makers.items() if name in now and name not in bound}
        self.makers = {**unchanged, **bound}
        self._ids_before = {}


def _ids(namespace: dict[str, Any], ignored: Set[str]) -> dict[str, int]:
    copy = namespace.copy()
    return {name: id(copy[name]) for name in copy if type(name) is str and name not in ignored}
