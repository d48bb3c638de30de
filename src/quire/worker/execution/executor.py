"""Run one cell: parse, execute, and report values and errors.

Plain Python runs without IPython. Cells with IPython syntax are translated by IPython, which also formats values
whose text is not simply their repr.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import os
import re
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from quire.wire.messages import Finished, Raised, Run
from quire.worker.execution import debugger, errors, evaluation, event_loop, memory_reserve, namespace, tracking
from quire.worker.execution.errors import raised_event
from quire.worker.execution.history import History
from quire.worker.output.display import Display
from quire.worker.shell.ipython_loader import IPythonLoader

_MAYBE_IPYTHON = re.compile(r"[%!?]|^\s|^In \[|>>>")  # in IPython syntax, and possibly in plain Python
_SHORT_TEXT_CHARS = 10_000  # shown without shortening


class Executor:
    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = module
        self.namespace: dict[str, Any] = module.__dict__  # kept here, since a cell can replace __main__
        self.bound_names: set[str] = set()  # by the last cell's code
        self.runs_in_ipython = False  # IPython runs every cell
        self.display = Display(emit)
        self.history = History(self.namespace)
        self._evaluation = evaluation.Evaluation(self.namespace)
        self._value: list[Any] = []
        self._hides_value = False
        self._reported_error: BaseException | None = None  # already reported by the shell
        self._format_error: BaseException | None = None  # raised while a value was formatted
        self.ipython_loader = IPythonLoader(module, self.display, self.history, self._configure_shell)
        debugger.keep_out_of_kernel()

    def _configure_shell(self, shell: Any) -> None:
        shell.report = self._report_error
        shell.show_result = self._show_result
        shell.loop_runner = event_loop.wait_for

    def execute(self, run: Run) -> Finished:
        """Run a cell and report what it raises. Only the end of the process escapes."""
        outcome, process = "success", os.getpid()
        self._value, self._reported_error, self.bound_names, self._hides_value = [], None, set(), False
        cell = _Cell()
        memory_reserve.allocate()
        self.history.begin_cell(run.count, run.code)
        sys.displayhook = self._display_hook
        try:
            event_loop.offer()
            self._before_run(run)
            self._run(run, cell)
            event_loop.start_scheduled_tasks()
        except BaseException as error:
            memory_reserve.release()  # reporting the error needs memory
            if os.getpid() != process:
                _end_child(error)
            outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
            cell.error = error
            self._report_raised(error)
        if os.getpid() != process:
            _end_child(None)
        try:
            self._after_run(run, cell)
        finally:
            event_loop.withdraw()
            debugger.end_steps()
        if self._reported_error is not None and outcome == "success":
            outcome = "error"
        return Finished(run=run.run, outcome=outcome, value=self._value, imports=cell.imports, functions=cell.functions)

    def _report_raised(self, error: BaseException) -> None:
        if not isinstance(error, MemoryError):  # its frames hold what took the memory
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        shell = self.ipython_loader.shell
        if error is self._reported_error:
            return
        if shell is not None and isinstance(error, shell.custom_exceptions):
            shell.CustomTB(type(error), error, error.__traceback__)
        elif type(error).__name__ == "UsageError":  # of a magic; shown as in notebooks
            print(f"UsageError: {error}", file=sys.stderr)
        else:
            self._emit(raised_event(error))

    def _before_run(self, run: Run) -> None:
        shell = self.ipython_loader.shell
        self.ipython_loader.bind_names()  # an earlier cell may have deleted them
        if shell is not None:
            shell.execution_count = run.count + (not self.runs_in_ipython)  # run_cell increments it
            if not self.runs_in_ipython:
                evaluation.trigger_event(shell, "pre_execute")
                evaluation.trigger_event(shell, "pre_run_cell", lambda: evaluation.execution_info(run.code))

    def _after_run(self, run: Run, cell: _Cell) -> None:
        """Run what is due at the end of a cell, such as showing figures. Errors are the cell's."""
        shell = self.ipython_loader.shell
        reported = self._reported_error
        try:
            if shell is not None and not self.runs_in_ipython:
                evaluation.trigger_event(shell, "post_execute")
                evaluation.trigger_event(
                    shell, "post_run_cell", lambda: evaluation.execution_result(run, self._value, cell.error)
                )
                self._reported_error = reported  # errors in callbacks are shown, but are not the cell's
            if self.display.after_cell is not None:
                self.display.after_cell()
        except Exception as error:
            self._reported_error = error
            self._emit(raised_event(error))

    def _run(self, run: Run, cell: _Cell) -> None:
        name = f"<{run.name}>"
        if self.runs_in_ipython:
            self._run_by_ipython(run, cell)
            return
        lines = [f"{line}\n" for line in run.code.split("\n")]  # newlines for all lines, or carets are off by one
        linecache.cache[name] = (len(run.code), None, lines, name)  # no mtime: checkcache keeps the entry
        plain = self.ipython_loader.shell is None and not self._may_be_magic(run.code)
        if plain and self._evaluation.run_expression(run.code, name):
            return  # it binds, imports and defines nothing
        tree, code = self._parse(run.code, name)
        self.history.set_python(code)
        self._track(tree, code, cell)
        self._hides_value = evaluation.ends_with_semicolon(tree, code)
        shell = self.ipython_loader.shell
        if shell is None:
            self._evaluation.run(tree, name, "last_expr")
            return
        shell.quiet = self._hides_value
        tree = shell.transform_ast(tree)
        with shell.display_trap:  # which may run cells within this one
            self._evaluation.run(tree, name, shell.ast_node_interactivity)

    def _run_by_ipython(self, run: Run, cell: _Cell) -> None:
        shell = self.ipython_loader.load()
        shell.quiet = run.code.rstrip().endswith(";")
        shell.transformed = ""
        try:
            result = shell.run_cell(run.code, store_history=False)
        finally:
            with contextlib.suppress(SyntaxError, ValueError):  # IPython has reported it
                self._track(ast.parse(shell.transformed), shell.transformed, cell)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            raise error

    def _track(self, tree: ast.Module, code: str, cell: _Cell) -> None:
        """Record what a cell's Python binds, imports and defines."""
        self.bound_names = tracking.bound_names(tree)
        cell.imports, cell.functions = tracking.imports_and_functions(tree, code)

    def _parse(self, code: str, name: str) -> tuple[ast.Module, str]:
        shell = self.ipython_loader.shell
        try:
            if shell is None or not shell.transforms_all():
                evaluation.warn_as_ipython(code)
                tree = ast.parse(code, name)
                if not self._is_magic_word(tree):
                    return tree, code
        except SyntaxError:
            if _MAYBE_IPYTHON.search(code) is None and "\n" in code.strip():
                raise
            plain = self.ipython_loader.load().transform(code)
            if plain.rstrip("\n") == code.rstrip("\n"):
                raise
            return ast.parse(plain, name), plain
        plain = self.ipython_loader.load().transform(code)
        return ast.parse(plain, name), plain

    def _may_be_magic(self, code: str) -> bool:
        """Whether the cell is a single name that is no variable; see _is_magic_word."""
        name = code.strip()
        return name.isidentifier() and name not in self.namespace

    def _is_magic_word(self, tree: ast.Module) -> bool:
        """Whether the cell is a single name that is a magic, such as `ls`, or a macro, as in IPython."""
        match tree.body:
            case [ast.Expr(value=ast.Name(id=name))]:
                if name in self.namespace:
                    return type(self.namespace[name]).__name__ == "Macro"
                if hasattr(builtins, name) or (shell := self.ipython_loader.load_if_possible()) is None:
                    return False
                return shell.find_line_magic(name) is not None
        return False

    def _display_hook(self, value: Any) -> None:
        """sys.displayhook while a cell runs."""
        if value is not None and not self._hides_value:
            self._show_result(value)

    def _show_result(self, value: Any) -> None:
        text = evaluation.simple_text(value, self.ipython_loader.shell)
        data, metadata = ({"text/plain": text}, {}) if text is not None else self._format_value(value)
        self.history.add_result(value, str(data.get("text/plain", "")))
        self._value = namespace.as_json(value)
        if text is not None and len(text) <= _SHORT_TEXT_CHARS:
            self.display.show_text(text)
        elif data:
            self.display.publish(data, metadata, value=value, result=True)

    def _format_value(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The value in all formats. An error in a formatter is reported; without any format it is the cell's error."""
        self._format_error = None
        shell = self.ipython_loader.load_if_possible()
        if shell is None:
            return {"text/plain": repr(value)}, {}
        data, metadata = shell.format(value)
        if not data:
            self._reported_error = self._format_error or self._reported_error
        return data, metadata

    def _report_error(self, error: BaseException, text: str) -> None:
        """Called by the shell in place of printing an error it caught."""
        if type(error).__name__ == "UsageError":
            self._reported_error = error
            print(text, file=sys.stderr)
            return
        if self.display.captures:
            self.display.captures[-1].failed(type(error).__name__, str(error), text)
            return
        if getattr(self.ipython_loader.shell, "formatting", 0):
            self._format_error = error
        else:
            self._reported_error = error
        traceback = errors.with_hint(errors.printable(text), error)
        self._emit(Raised(**{**vars(raised_event(error)), "traceback": traceback}))


class _Cell:
    """Results of the running cell."""

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.functions: list[str] = []
        self.error: BaseException | None = None


def _end_child(error: BaseException | None) -> NoReturn:
    """A child process that the cell forked has reached the end of the cell. Exit as a script does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 0 if error is None else 1
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        sys.stderr.write(f"{errors.format_traceback(error)}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)
