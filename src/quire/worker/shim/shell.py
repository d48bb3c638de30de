"""What `get_ipython()` gives where IPython is not installed."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import keyword
import os
import re
import sys
import traceback
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quire.worker import commands, event_loop
from quire.worker.shim import magics, running
from quire.worker.shim.events import Events
from quire.worker.shim.expansion import expanded
from quire.worker.shim.extensions import Extensions
from quire.worker.shim.formatters import DisplayFormatter, PlainText
from quire.worker.shim.registry import Registry
from quire.worker.shim.surface import Config, Kernel, Publisher, Transforms, _Surface

Publish = Callable[..., None]
_current: list[Any] = []
_MAGIC_WORD = re.compile(r"\s*([A-Za-z_]\w*)(?:[ \t]+[^=,\s][^\n]*)?\s*")
_OURS = os.path.dirname(__file__)


def current() -> Any:
    """The running shell, made now where a kernel makes it when it is asked for; None where nobody does."""
    if not _current:
        return getattr(builtins, "get_ipython", lambda: None)()
    return _current[-1]


def forget() -> None:
    """The kernel whose shell it was is gone: the next makes its own."""
    _current.clear()


class Shell(_Surface):
    """Called as ipykernel's is: libraries look at the name to know that they are in a notebook."""

    def __init__(self, namespace: dict[str, Any], publish: Publish, clear: Callable[[bool], None]) -> None:
        self.user_ns = self.user_global_ns = namespace
        self.user_ns_hidden: dict[str, Any] = {}
        self.events = Events()
        self.display_formatter = DisplayFormatter()
        self.display_pub: Any = Publisher(self, publish, clear)
        self.magics_manager = Registry(self)
        self.extension_manager = Extensions(self)
        self.input_transformer_manager = Transforms()
        self.ast_transformers: list[ast.NodeTransformer] = []
        self.config = Config()
        self.kernel = Kernel(self)
        self.quiet = False
        self.show_result: Callable[[Any], None] = self._show
        self.report: Callable[[BaseException, str], None] = lambda error, text: print(text, file=sys.stderr)
        self.loop_runner: Callable[[Any], Any] = asyncio.run
        self.begin()

    def __reduce__(self) -> Any:
        return current, ()  # a variable that holds it comes back as the shell there is then

    def begin(self) -> None:
        """Be the shell that display classes and magics find."""
        _current[:] = [self]

    # What the executor asks

    def transform(self, code: str) -> str:
        """Python, of a cell in IPython's syntax, by way of what libraries put before and after."""
        return self.input_transformer_manager.transform_cell(self._spelt_out(code))

    transform_cell = transform

    def _spelt_out(self, code: str) -> str:
        """A lone line that begins with a magic's name, where nothing else has that name, is the magic."""
        found = _MAGIC_WORD.fullmatch(code)
        if found is None or found[1] in self.user_ns or hasattr(builtins, found[1]) or keyword.iskeyword(found[1]):
            return code
        return f"%{code.lstrip()}" if self.find_line_magic(found[1]) is not None else code

    def transforms_all(self) -> bool:
        """Whether somebody has a say about every cell's text."""
        return bool(self.input_transformers_cleanup or self.input_transformers_post)

    def transform_ast(self, node: Any) -> Any:
        """The tree, changed by those who asked to; one that fails is asked no more."""
        for transformer in self.ast_transformers[:]:
            try:
                node = transformer.visit(node)
            except Exception as error:
                self.ast_transformers.remove(transformer)
                sys.stderr.write(f"AST transformer {transformer!r} is left out from now on: {error!r}\n")
        return ast.fix_missing_locations(node) if self.ast_transformers else node

    def format(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """All forms of a value; none where it has shown itself."""
        return self.display_formatter.format(value)

    format_value = format

    def is_plain(self, kind: type) -> bool:
        """Whether nobody registered a form of his own for this builtin type."""
        forms = self.display_formatter.formatters
        plain = forms["text/plain"]
        if not isinstance(plain, PlainText) or not plain.is_as_made(kind):
            return False
        others = [*list(forms.values())[1:], self.display_formatter.mimebundle_formatter]
        return all(kind not in each.type_printers for each in others)

    # Magics

    def find_magic(self, magic_name: str, magic_kind: str = "line") -> Any:
        return self.magics_manager.magics[magic_kind].get(magic_name)

    def find_line_magic(self, magic_name: str) -> Any:
        return self.find_magic(magic_name, "line")

    def find_cell_magic(self, magic_name: str) -> Any:
        return self.find_magic(magic_name, "cell")

    def register_magic_function(
        self, func: Callable[..., Any], magic_kind: str = "line", magic_name: str | None = None
    ) -> None:
        self.magics_manager.register_function(func, magic_kind, magic_name)

    def register_magics(self, *given: Any) -> None:
        self.magics_manager.register(*given)

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        magic = self.magics_manager.found(magic_name, "line")
        return self._run_magic(magic, line, sys._getframe(_stack_depth))

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        magic = self.magics_manager.found(magic_name, "cell")
        return self._run_magic(magic, line, sys._getframe(1), cell)

    def magic(self, arg_s: str) -> Any:
        name, _, line = arg_s.partition(" ")
        return self.run_line_magic(name.lstrip("%"), line, _stack_depth=2)

    def _run_magic(self, magic: Callable[..., Any], line: str, frame: types.FrameType, *cell: str) -> Any:
        if not getattr(magic, "_ipython_magic_no_var_expand", False):
            line = expanded(line, self._names(frame))
        named = {"local_ns": frame.f_locals} if getattr(magic, "needs_local_scope", False) else {}
        return magic(line, *cell, **named)

    def _names(self, frame: types.FrameType) -> dict[str, Any]:
        """What a line can name: the notebook's variables, and those of the function the line is in."""
        return {**self.user_ns, **frame.f_locals}

    def var_expand(self, cmd: str, depth: int = 0, formatter: Any = None) -> str:
        return expanded(cmd, self._names(sys._getframe(depth + 1)))

    # Commands

    def system(self, cmd: str) -> None:
        self.user_ns["_exit_code"] = commands.system(self.var_expand(cmd, 1))

    system_raw = system_piped = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        command = self.var_expand(cmd, depth + 1)
        return commands.getoutput(command) if split else commands.output_text(command)

    # Code

    def run_cell(
        self, raw_cell: str, store_history: bool = False, silent: bool = False, *args: Any, **named: Any
    ) -> running.ExecutionResult:
        """Run a cell inside the cell: values are shown, and what it raises is told and handed back."""
        info = running.ExecutionInfo(raw_cell, store_history, silent)
        result = running.ExecutionResult(info, self.execution_count)
        if not silent:
            self.events.trigger("pre_run_cell", info)
        try:
            tree, name = running.parsed(self.transform(raw_cell), "inside")
        except Exception as error:
            result.error_before_exec = error
        else:
            self._run_tree(tree, name, result, silent)
        if not result.success:
            self._tell(result.error_before_exec or result.error_in_exec)
        self.events.trigger("post_execute")
        if not silent:
            self.events.trigger("post_run_cell", result)
        return result

    def _run_tree(self, tree: ast.Module, name: str, result: running.ExecutionResult, silent: bool) -> None:
        try:
            mode = "none" if silent else self.ast_node_interactivity
            codes = running.compiled(self.transform_ast(tree), name, mode)
            for value in running.run(codes, self.user_ns, self.wait_for):
                result.result = value
                # what is captured goes by our publisher's place, not by the executor's way
                self.show_result(value) if isinstance(self.display_pub, Publisher) else self._show(value)
        except Exception as error:
            result.error_in_exec = error

    def wait_for(self, coroutine: Any) -> Any:
        """What it gives, by the kernel's loop; where that is busy with this very cell, by one of its own."""
        if event_loop.turning() is None:
            return self.loop_runner(coroutine)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()

    def _show(self, value: Any) -> None:
        data, metadata = self.format(value)
        self.display_pub.publish(data, metadata)

    def ev(self, expr: str) -> Any:
        return eval(expr, self.user_ns)  # noqa: S307 - the user's own

    def ex(self, cmd: str) -> None:
        exec(cmd, self.user_ns)

    def push(self, variables: Any, interactive: bool = True) -> None:
        """Names into the namespace: of a dict, or of the caller by name."""
        if isinstance(variables, dict):
            self.user_ns.update(variables)
            return
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        for name in variables.split() if isinstance(variables, str) else variables:
            if caller is not None:
                self.user_ns[name] = eval(name, caller.f_globals, caller.f_locals)  # noqa: S307 - as asked

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **named: Any) -> None:
        self._tell((exc_tuple or sys.exc_info())[1])

    showsyntaxerror = showtraceback

    def _tell(self, error: BaseException | None) -> None:
        if error is None:
            return
        if isinstance(error, self.custom_exceptions):
            self.CustomTB(type(error), error, error.__traceback__)
            return
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        self.report(error, "".join(traceback.format_exception(type(error), error, trace)).rstrip())


Shell.__name__ = Shell.__qualname__ = "ZMQInteractiveShell"
Shell.__module__ = "ipykernel.zmqshell"
magics.load()
