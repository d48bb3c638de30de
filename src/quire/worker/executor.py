"""Compile, execute, report: one cell in one namespace."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from quire.wire.messages import Finished, Raised, Run
from quire.worker import display, figures, namespace, pip, reserve, tracking

_TRACEBACK_CHARS = 20_000
_OURS = os.path.dirname(os.path.dirname(__file__))  # worker and wire


class Executor:
    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = module
        self.namespace: dict[str, Any] = module.__dict__  # ours to keep: a cell can replace __main__
        self.bound: set[str] = set()  # names that the last cell's code binds
        self._loop: asyncio.AbstractEventLoop | None = None

    def execute(self, run: Run) -> Finished:
        """Run the cell; whatever it raises is reported, and only a dying process escapes."""
        imports: list[str] = []
        functions: list[str] = []
        value: list[Any] = []
        outcome = "success"
        name = f"<{run.name}>"
        process = os.getpid()
        reserve.save()
        self.bound = set()
        try:
            tree = self._parse(run.code, name)
            self.bound = tracking.bound_names(tree)
            imports, functions = tracking.imports_and_functions(tree, run.code)
            value = self._run(tree, name)
            figures.flush()
        except BaseException as error:
            reserve.spend()  # there may be no memory left even to say so
            if os.getpid() != process:
                _end_child(error)
            outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
            if outcome == "error":
                self._flush_figures()
            self._emit(raised(error))
        if os.getpid() != process:
            _end_child(None)
        return Finished(run=run.run, outcome=outcome, value=value, imports=imports, functions=functions)

    def _parse(self, code: str, name: str) -> ast.Module:
        lines = [f"{line}\n" for line in code.split("\n")]  # the last one too, or carets are one off
        linecache.cache[name] = (len(code), None, lines, name)  # no mtime: checkcache leaves it alone
        try:
            return ast.parse(code, name)
        except SyntaxError:
            plain = pip.rewritten(code)
            if plain is None:
                raise
            setattr(builtins, pip.CALL, pip.run)
            return ast.parse(plain, name)

    def _run(self, tree: ast.Module, name: str) -> list[Any]:
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts: list[ast.Module | ast.Expression] = [tree] if tree.body else []
        if isinstance(last, ast.Expr):
            parts.append(ast.Expression(last.value))
        value = self._exec([_compiled(part, name) for part in parts])
        if value is None or last is None:
            return []
        self.namespace["_"] = value
        self._emit(display.displayed(value, result=True), more=True)
        return namespace.as_json(value)

    def _exec(self, codes: list[types.CodeType]) -> Any:
        """The last one's value; where any of them awaits, all of them run in the event loop."""
        if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
            return self._await(self._exec_awaiting(codes))
        value = None
        for code in codes:
            value = eval(code, self.namespace)  # noqa: S307 - the user's own code
        return value

    async def _exec_awaiting(self, codes: list[types.CodeType]) -> Any:
        value = None
        for code in codes:
            value = eval(code, self.namespace)  # noqa: S307 - the user's own code
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    def _await(self, coroutine: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()  # one for all cells: what a cell opened stays open
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            if not task.done():  # or it would go on in the next cell that awaits
                task.cancel()
                self._loop.run_until_complete(asyncio.wait([task], timeout=1))
            raise

    def _flush_figures(self) -> None:
        try:
            figures.flush()
        except Exception as error:
            self._emit(raised(error))


def _compiled(part: ast.Module | ast.Expression, name: str) -> types.CodeType:
    mode = "exec" if isinstance(part, ast.Module) else "eval"
    code: types.CodeType = compile(part, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def _end_child(error: BaseException | None) -> NoReturn:
    """A child the cell forked came to the cell's end: it leaves as a script does, not into our loop."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        sys.stderr.write(f"{_format(error)}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


def raised(error: BaseException) -> Raised:
    name = type(error).__name__
    message = _say(error)
    if isinstance(error, SystemExit):
        message = f"exit code {message or 0}; the kernel goes on and its variables are kept"
    return Raised(name=name, message=_text(message)[:4_000], traceback=_text(_format(error)))


def _say(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "<its __str__ raised too>"


def _format(error: BaseException) -> str:
    """The traceback as Python prints it, from the cell's first line on."""
    try:
        whole = traceback.TracebackException(type(error), error, _user_part(error), compact=True)
        whole.stack[:] = [frame for frame in whole.stack if not frame.filename.startswith(_OURS)]
        text = "".join(whole.format()).rstrip()
    except Exception:
        text = f"{type(error).__name__}: {_say(error)}"
    if len(text) > _TRACEBACK_CHARS:
        half = _TRACEBACK_CHARS // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"
    return text


def _user_part(error: BaseException) -> types.TracebackType | None:
    """Skip our own frames at the top; none left means the cell did not even compile."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    return trace


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
