"""Code run on a shell's behalf: a cell inside a cell, a magic's text, with the values it shows."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MODES = ("all", "last", "last_expr", "none", "last_expr_or_assign")


@dataclass
class ExecutionInfo:
    """What is about to run."""

    raw_cell: str = ""
    store_history: bool = False
    silent: bool = False
    shell_futures: bool = True
    cell_id: str | None = None


@dataclass
class ExecutionResult:
    """What came of it."""

    info: ExecutionInfo | None = None
    execution_count: int | None = None
    error_before_exec: BaseException | None = None
    error_in_exec: BaseException | None = None
    result: Any = None

    @property
    def success(self) -> bool:
        return self.error_before_exec is None and self.error_in_exec is None

    def raise_error(self) -> None:
        for error in (self.error_before_exec, self.error_in_exec):
            if error is not None:
                raise error


def steps(tree: ast.Module, mode: str) -> list[tuple[ast.Module | ast.Expression, bool]]:
    """The code in pieces, each with whether its value is shown."""
    body = list(tree.body)
    if mode == "last_expr_or_assign" and body:
        target = _assigned(body[-1])
        if target:
            body.append(
                ast.copy_location(ast.Expr(ast.copy_location(ast.Name(target, ast.Load()), body[-1])), body[-1])
            )
    if mode == "none":
        shown: list[ast.stmt] = []
    elif mode == "all":
        shown = body
    else:
        shown = body[-1:]
    parts: list[tuple[ast.Module | ast.Expression, bool]] = []
    for node in body:
        if isinstance(node, ast.Expr) and node in shown:
            parts.append((ast.Expression(node.value), True))
        elif parts and isinstance(parts[-1][0], ast.Module):
            parts[-1][0].body.append(node)
        else:
            parts.append((ast.Module([node], []), False))
    return parts


def _assigned(node: ast.stmt) -> str:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.AugAssign(target=ast.Name(id=name)):
            return name
    return ""


_count = 0


def parsed(code: str, kind: str) -> tuple[ast.Module, str]:
    """The tree, and the file name under which tracebacks find its lines."""
    global _count
    _count += 1
    name = f"<cell {kind} {_count}>"
    linecache.cache[name] = (len(code), None, [f"{line}\n" for line in code.split("\n")], name)
    return ast.parse(code, name), name


Compiled = list[tuple[types.CodeType, bool]]


def compiled(tree: ast.Module, name: str, mode: str = "last_expr") -> Compiled:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return [
        (compile(part, name, "exec" if isinstance(part, ast.Module) else "eval", flags, dont_inherit=True), shown)
        for part, shown in steps(tree, mode)
    ]


def run(
    codes: Compiled, names: dict[str, Any], wait: Callable[[Any], Any], local: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """Execute piece by piece; the values that are to be shown, as they come. `wait` awaits for code that does."""
    for code, shown in codes:
        value = eval(code, names, local)  # noqa: S307 - the user's own code
        if code.co_flags & inspect.CO_COROUTINE:
            value = wait(value)
        if shown and value is not None:
            yield value
