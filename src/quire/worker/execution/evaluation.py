"""Compile and evaluate the statements of a cell, in the event loop if they await."""

from __future__ import annotations
import __future__

import ast
import inspect
import keyword
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from quire.wire.messages import Run
from quire.worker.execution import event_loop

_ATOMS = frozenset((int, float, bool, str, bytes, complex))
_MAX_ITEMS = 20  # of a container whose repr is its text
_MAX_WIDTH = 75  # characters of such a repr, well within a line
_WARNS = re.compile(r"""\\[^\n\\'"abfnrtv0-7xNuU]|\bis\s+(?:not\s+)?[\d'"]|[\d'"]\s+is\b|\bassert\s*\(""")
# no statement, which begins with a keyword or contains one of these characters, and no IPython syntax
_PLAIN_EXPRESSION = re.compile(rf"(?!(?:{'|'.join(keyword.kwlist)})\b)[\w'\"(\[{{][^=:;\n\r\\%!?@]*")
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class Evaluation:
    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._futures = 0  # flags of `from __future__ import` statements, for all later cells

    def run(self, tree: ast.Module, name: str, mode: str) -> None:
        """`mode` selects the statements whose values are shown, as IPython's ast_node_interactivity."""
        self._evaluate([self._compiled(part, name) for part in _parts(tree, mode)])

    def run_expression(self, source: str, name: str) -> bool:
        """Run a cell that is one plain expression. False if it is not, or may not be."""
        if _PLAIN_EXPRESSION.fullmatch(source) is None or _WARNS.search(source) is not None:
            return False
        try:
            code = self._compiled(source, name)
        except SyntaxError:
            return False
        self._evaluate([code])
        return True

    def _evaluate(self, codes: list[types.CodeType]) -> None:
        if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
            event_loop.wait_for(self._awaiting(codes))
            return
        for code in codes:
            eval(code, self._namespace)  # noqa: S307 - the user's own code

    def _compiled(self, part: ast.Module | ast.Interactive | str, name: str) -> types.CodeType:
        mode = "exec" if isinstance(part, ast.Module) else "single"
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._futures
        code: types.CodeType = compile(part, name, mode, flags, dont_inherit=True)
        self._futures |= code.co_flags & _FUTURES
        return code

    async def _awaiting(self, codes: list[types.CodeType]) -> None:
        for code in codes:
            value = eval(code, self._namespace)  # noqa: S307 - the user's own code
            if code.co_flags & inspect.CO_COROUTINE:
                await value


def _parts(tree: ast.Module, mode: str) -> list[ast.Module | ast.Interactive]:
    """Group the statements: those whose values are shown one by one, the others together."""
    body = tree.body
    if not body or mode == "none":
        return [tree] if body else []
    if mode == "last_expr_or_assign" and (named := _assigned(body[-1])) is not None:
        body = [*body, ast.copy_location(ast.fix_missing_locations(ast.Expr(named)), body[-1])]
        ast.fix_missing_locations(body[-1])
        mode = "last_expr"
    if mode == "all":
        return [ast.Interactive([statement]) for statement in body]
    if mode == "last_expr" and not isinstance(body[-1], ast.Expr):
        return [tree]
    parts: list[ast.Module | ast.Interactive] = [ast.Interactive([body[-1]])]
    return [ast.Module(body[:-1], tree.type_ignores), *parts] if len(body) > 1 else parts


def _assigned(statement: ast.stmt) -> ast.Name | None:
    """The name that a statement assigns to, if it is one."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return ast.Name(name, ast.Load())
        case ast.AugAssign(target=ast.Name(id=name)) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return ast.Name(name, ast.Load())
    return None


def warn_as_ipython(code: str) -> None:
    """Compile twice more, so that warnings appear three times as in a notebook, where IPython compiles a cell to
    check it."""
    if _WARNS.search(code) is not None:
        for _ in range(2):
            compile(code, "<>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def ends_with_semicolon(tree: ast.Module, code: str) -> bool:
    """Whether a cell ends with a semicolon, apart from comments. Its value is not shown then."""
    if ";" not in code or not tree.body:
        return False
    last = tree.body[-1]
    if last.end_lineno is None or last.end_col_offset is None:
        return False
    lines = code.split("\n")[last.end_lineno - 1 :]
    rest = lines[0].encode("utf-8")[last.end_col_offset :].decode("utf-8", "replace") if lines else ""
    return rest.lstrip().startswith(";")


def simple_text(value: Any, shell: Any) -> str | None:
    """The text of a plain value whose repr is also what IPython would show, or None."""
    value_type = type(value)
    if value_type in _ATOMS:
        return repr(value) if shell is None or shell.is_plain(value_type) else None
    if value_type not in (list, tuple, dict) or len(value) > _MAX_ITEMS:
        return None
    items = [*value, *value.values()] if value_type is dict else value
    kinds = {value_type, *map(type, items)}
    if not kinds - {value_type} <= _ATOMS or value_type in map(type, items):
        return None
    if shell is not None and not all(map(shell.is_plain, kinds)):
        return None
    text = repr(value)
    return text if len(text) <= _MAX_WIDTH else None


def trigger_event(shell: Any, event: str, argument: Callable[[], Any] | None = None) -> None:
    if shell.events.callbacks.get(event):
        shell.events.trigger(event, *([argument()] if argument is not None else []))


def execution_info(code: str) -> Any:
    """The argument of pre_run_cell callbacks."""
    shells = sys.modules.get("IPython.core.interactiveshell")
    if shells is not None and hasattr(shells, "ExecutionInfo"):
        return shells.ExecutionInfo(code, True, False, True, None)
    return types.SimpleNamespace(raw_cell=code, store_history=True, silent=False, shell_futures=True, cell_id=None)


def execution_result(run: Run, value: list[Any], error: BaseException | None) -> Any:
    """The argument of post_run_cell callbacks."""
    shells = sys.modules.get("IPython.core.interactiveshell")
    if shells is not None and hasattr(shells, "ExecutionResult"):
        execution = shells.ExecutionResult(execution_info(run.code))
    else:
        execution = types.SimpleNamespace(info=execution_info(run.code), error_before_exec=None, success=error is None)
    execution.error_in_exec = error
    execution.execution_count = run.count
    execution.result = value[0] if value else None
    return execution
