"""What `get_ipython()` is in a guest: the syntax of magics, those that work there, and how values are shown."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quire.runtimes.wasm.guest import formatting
from quire.worker.environment import pip
from quire.worker.execution import errors
from quire.worker.output.display import Display
from quire.worker.shell import commands

_ESCAPED = re.compile(r"(?P<before>[ \t]*(?:[\w.,\[\]'\" \t]+=[ \t]*)?)(?P<mark>%|!)(?P<rest>.*)")
_HELP = re.compile(r"(?P<before>[ \t]*)(?P<name>[A-Za-z_][\w.]*)\?\??[ \t]*")
_MAGICS = "%time, %%time, %%writefile and %pip"


class UsageError(Exception):
    """A magic that is not there, or not used as it can be."""


UsageError.__module__ = "builtins"  # shown by its name alone


class Events:
    """Callbacks of libraries, such as the one with which matplotlib draws at the end of a cell."""

    def __init__(self) -> None:
        names = ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell")
        self.callbacks: dict[str, list[Callable[..., Any]]] = {name: [] for name in names}

    def register(self, event: str, function: Callable[..., Any]) -> None:
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)

    def unregister(self, event: str, function: Callable[..., Any]) -> None:
        self.callbacks[event].remove(function)

    def trigger(self, event: str, *given: Any) -> None:
        """Call all of them; an error of one is printed and does not stop the others."""
        for function in self.callbacks[event][:]:
            try:
                function(*given)
            except Exception as error:
                sys.stderr.write(f"Error in callback {function} (for {event}):\n{errors.format_traceback(error)}\n")


class Shell:
    """Has the names of IPython's InteractiveShell for what it can do."""

    ast_node_interactivity = "last_expr"
    custom_exceptions: tuple[type[BaseException], ...] = ()
    formatting = 0
    kernel = True  # pandas looks for it, to know that this is a notebook
    display_trap = contextlib.nullcontext()

    def __init__(self, namespace: dict[str, Any], display: Display) -> None:
        self.user_ns = namespace
        self.display_pub = display
        self.events = Events()
        self.execution_count = 0
        self.quiet = False
        self.report: Callable[[BaseException, str], None] = lambda error, text: None
        self.show_result: Callable[[Any], None] = lambda value: None
        self.loop_runner: Callable[[Any], Any] = lambda coroutine: None

    # What the executor asks

    def transforms_all(self) -> bool:
        return False

    def transform_ast(self, tree: ast.Module) -> ast.Module:
        return tree

    def is_plain(self, kind: type) -> bool:
        return True

    def format(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return formatting.format_value(value)

    def find_line_magic(self, name: str) -> None:
        """A lone word is a name here, never a magic."""

    def transform(self, code: str) -> str:
        """Python of a cell with magics, !commands or help, which is not Python as it is."""
        body = code.lstrip()
        if body.startswith("%%"):
            line, _, rest = body[2:].partition("\n")
            name, _, arguments = line.strip().partition(" ")
            return f"get_ipython().run_cell_magic({name!r}, {arguments!r}, {rest!r})\n"
        return "\n".join(map(_transform_line, code.split("\n")))

    # What transformed cells call

    def system(self, command: str) -> None:
        commands.system(command)

    def getoutput(self, command: str) -> list[str]:
        return commands.getoutput(command)

    def run_line_magic(self, name: str, line: str) -> Any:
        if name == "pip":
            return pip.run(line)
        if name == "time":
            return self._time(line)
        raise UsageError(_unknown(f"%{name}"))

    def run_cell_magic(self, name: str, line: str, cell: str) -> Any:
        if name == "time":
            return self._time(cell)
        if name != "writefile":
            raise UsageError(_unknown(f"%%{name}"))
        option, _, path = line.rpartition(" ")
        existed = Path(path).exists()
        with Path(path).open("a" if option in ("-a", "--append") else "w", encoding="utf-8") as file:
            file.write(cell)
        print(f"{'Overwriting' if existed and not option else 'Appending to' if existed else 'Writing'} {path}")
        return None

    def _time(self, code: str) -> Any:
        """Run it and print how long that took; the value of its last expression."""
        tree = ast.parse(code.strip())
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        began, worked = time.perf_counter(), time.process_time()
        exec(compile(tree, "<timed>", "exec", dont_inherit=True), self.user_ns)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<timed>", "eval", dont_inherit=True), self.user_ns)  # noqa: S307
        took, work = time.perf_counter() - began, time.process_time() - worked
        print(f"CPU times: total: {work * 1000:.3g} ms\nWall time: {took * 1000:.3g} ms")
        return value

    def show_help(self, name: str) -> None:
        """What an object says of itself."""
        try:
            value = eval(name, self.user_ns)  # noqa: S307 - a name and attributes, as typed
        except Exception:
            print(f"Object `{name}` not found.")
            return
        with contextlib.suppress(ValueError, TypeError):
            print(f"Signature: {name}{inspect.signature(value)}")
        print(f"Type: {type(value).__name__}\nDocstring: {inspect.getdoc(value) or '<no docstring>'}")


Shell.__name__ = Shell.__qualname__ = "ZMQInteractiveShell"  # by which libraries know that they are in a notebook
Shell.__module__ = "ipykernel.zmqshell"


def _transform_line(line: str) -> str:
    if found := _HELP.fullmatch(line):
        return f"{found['before']}get_ipython().show_help({found['name']!r})"
    if (found := _ESCAPED.fullmatch(line)) is None:
        return line
    before, rest = found["before"], found["rest"]
    if found["mark"] == "!":
        method = "getoutput" if before.strip() else "system"
        return f"{before}get_ipython().{method}({rest!r})"
    name, _, arguments = rest.partition(" ")
    return f"{before}get_ipython().run_line_magic({name!r}, {arguments!r})"


def _unknown(magic: str) -> str:
    return (
        f"There is no magic {magic} in WebAssembly: there are {_MAGICS}. A notebook of the runtime `python` has all of "
        "IPython's."
    )
