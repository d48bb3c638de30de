"""An InteractiveShell that shows output, runs commands and reports errors through the worker.

It is created once, in the zygote if possible, and is attached to a kernel's namespace.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.formatters import DisplayFormatter
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell, InteractiveShellABC
from IPython.utils.text import SList
from traitlets import Any as AnyTrait
from traitlets import Type
from traitlets.config import Config

from quire.worker.environment import pip
from quire.worker.execution.history import History
from quire.worker.output.display import Display
from quire.worker.shell import commands, scripts

_Base: Any = InteractiveShell  # typed as Any, since IPython's annotations allow None for attributes that are always set


class Formatter(DisplayFormatter):
    """Remembers the last formatted value, so that the publisher knows which object a bundle shows."""

    last: Any = AnyTrait()

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        shell: Any = self.parent
        shell.formatting += 1
        try:
            bundle = super().format(obj, include=include, exclude=exclude)
        finally:
            shell.formatting -= 1
        self.last = (bundle[0], obj)
        return bundle

    def value_of(self, data: dict[str, Any]) -> Any:
        (bundle, value), self.last = self.last or (None, None), None
        return value if bundle is data else None


class _Publisher(DisplayPublisher):
    def publish(  # type: ignore[override]
        self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False, **more: Any
    ) -> None:
        self._validate_data(data, metadata)
        shell = self.shell
        shell.kernel_display.publish(data, metadata, transient, update, value=shell.display_formatter.value_of(data))

    def clear_output(self, wait: bool = False) -> None:
        self.shell.kernel_display.clear(wait)


class _DisplayHook(DisplayHook):
    """Shows values of expressions as the executor does, also where IPython runs the code."""

    def __call__(self, result: Any = None) -> None:
        shell: Any = self.shell
        if result is not None and not shell.quiet:
            self.fill_exec_result(result)
            shell.show_result(result)


class _History(HistoryManager):
    """The history of this kernel's cells. IPython's own uses a database, which is not used here."""

    def get_tail(self, n: int | None = 10, raw: bool = True, output: bool = False, include_latest: bool = False) -> Any:
        stop = len(self.input_hist_raw) - (not include_latest)
        return list(self.get_range(0, max(1, stop - (10 if n is None else n)), stop, raw, output)) if stop > 1 else []

    def search(
        self,
        pattern: str = "*",
        raw: bool = True,
        search_raw: bool = True,
        output: bool = False,
        n: int | None = None,
        unique: bool = False,
    ) -> Any:
        sources = self.input_hist_raw if search_raw else self.input_hist_parsed
        numbers = [at for at, source in enumerate(sources) if at and fnmatch.fnmatchcase(source, pattern)]
        if unique:  # keep the last of each
            numbers = sorted({sources[at]: at for at in numbers}.values())
        found = [entry for at in numbers for entry in self.get_range(0, at, at + 1, raw, output)]
        return found if n is None else found[max(0, len(found) - n) :]


class ZMQInteractiveShell(_Base):
    """Named as in ipykernel: libraries check the name to know that they are in a notebook."""

    displayhook_class = Type(_DisplayHook)
    display_pub_class = Type(_Publisher)
    kernel = AnyTrait()

    def __init__(self, **given: Any) -> None:
        self.kernel_display: Any = None
        self.quiet = False
        self.formatting = 0  # depth of nested formatting
        self.transformed = ""  # the Python of the cell that run_cell runs; "" until it is known
        self.show_result: Callable[[Any], None] = lambda value: None
        self.report: Callable[[BaseException, str], None] = lambda error, text: None
        super().__init__(**given)
        self.db = _MemoryStore(rootmodules_cache={})
        self.last_execution_result = ExecutionResult(None)
        formatter: Any = self.display_formatter
        self._text = formatter.formatters["text/plain"]
        self._default_printers = dict(self._text.type_printers)
        formatters = [
            *formatter.formatters.values(),
            formatter.mimebundle_formatter,
            formatter.ipython_display_formatter,
        ]
        self._other_printers = [item.type_printers for item in formatters if item is not self._text]
        self._transformers = (*self.input_transformers_cleanup, *self.input_transformers_post)
        self.kernel = IPythonKernel(self)

    def init_ipython_dir(self, ipython_dir: Any) -> None:
        """Create no files in the user's home folder."""

    def init_profile_dir(self, profile_dir: Any) -> None:
        pass

    def init_virtualenv(self) -> None:
        pass

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", self._page, 0)

    def _page(self, shell: Any, data: Any, start: int = 0, screen_lines: int = 0) -> None:
        """Show what `obj?` would send to a pager."""
        given = dict(data) if isinstance(data, dict) else {"text/plain": str(data)}
        if any(given.values()):
            self.kernel_display.publish({mime: item for mime, item in given.items() if item is not None})

    def init_history(self) -> None:
        self.history_manager = _History(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def init_display_formatter(self) -> None:
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_magics(self) -> None:
        super().init_magics()
        for name in ("script", *scripts.PROGRAMS):
            self.register_magic_function(self._script(name), "cell", name)  # IPython's own start a thread
        self.register_magic_function(pip.run, "line", "pip")
        self.register_magic_function(self._autosave, "line", "autosave")

    def _autosave(self, line: str) -> None:
        """%autosave N is for a browser; the server saves everything anyway."""
        seconds = int(line.split()[0]) if line.split() else 0
        script = f"IPython.notebook.set_autosave_interval({seconds * 1000})"
        self.kernel_display.publish({"application/javascript": script})
        print(f"Autosaving every {seconds} seconds" if seconds else "Autosave disabled")

    def _script(self, program: str) -> Callable[[str, str], None]:
        def script(line: str, cell: str) -> None:
            """Give the cell's text to a program; see --out, --err, --bg and --no-raise-error."""
            try:
                scripts.run(line if program == "script" else f"{program} {line}", cell, self.user_ns)
            except scripts.BadOption as error:
                raise UsageError(str(error)) from None

        return script

    # Used by the executor

    def attach(self, module: types.ModuleType, kernel_display: Display, history: History) -> None:
        """Become the shell of this kernel."""
        self.kernel_display = kernel_display
        self.user_module, self.user_ns = module, module.__dict__
        manager: Any = self.history_manager
        manager.input_hist_parsed, manager.input_hist_raw = history.inputs, history.sources
        manager.output_hist, manager.dir_hist = history.results, history.folders
        manager.output_hist_reprs = history.texts
        hidden = ("In", "Out", "_ih", "_oh", "_dh", "get_ipython", "__builtins__")
        self.user_ns_hidden = {name: self.user_ns[name] for name in hidden if name in self.user_ns}

    def transforms_all(self) -> bool:
        """Whether user code has changed the input transformers."""
        return (*self.input_transformers_cleanup, *self.input_transformers_post) != self._transformers

    def transform(self, code: str) -> str:
        return str(super().transform_cell(code))

    def transform_cell(self, raw_cell: str) -> str:
        """The Python of a cell that run_cell runs. Of nested cells, the outer one is remembered."""
        code = self.transform(raw_cell)
        self.transformed = self.transformed or code
        return code

    def is_plain(self, kind: type) -> bool:
        """Whether no formatter is registered for this built-in type."""
        plain = self._text
        if plain.type_printers.get(kind) is not self._default_printers.get(kind) or not plain.pprint:
            return False
        if kind is float and plain.float_format != "%r":
            return False
        return not any(kind in printers for printers in self._other_printers)

    def format(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        formatter: Any = self.display_formatter
        data, metadata = formatter.format(value)
        formatter.last = None
        return data, metadata

    # Used by magics and libraries

    def system(self, cmd: str) -> None:
        self.user_ns["_exit_code"] = commands.system(self.var_expand(cmd, depth=1))

    system_piped = system_raw = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        lines = commands.getoutput(self.var_expand(cmd, depth=depth + 1))
        return SList(lines) if split else "\n".join(lines)

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        self._check_magic("line", "%", magic_name)
        return super().run_line_magic(magic_name, line, _stack_depth=_stack_depth + 1)

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        self._check_magic("cell", "%%", magic_name)
        return super().run_cell_magic(magic_name, line, cell)

    def _check_magic(self, kind: str, mark: str, name: str) -> None:
        if name == "store":
            self.extension_manager.load_extension("storemagic")
        if self.find_magic(name, kind) is not None:
            return
        other = "cell" if kind == "line" else "line"
        if self.find_magic(name, other) is not None:
            raise UsageError(f"{mark}{name} is a {other} magic: write {'%%' if other == 'cell' else '%'}{name}.")
        magics = self.magics_manager.lsmagic()[kind]
        nearest = difflib.get_close_matches(name, list(magics), 1)
        hint = f" The nearest is {mark}{nearest[0]}." if nearest else ""
        raise UsageError(f"There is no magic {mark}{name}.{hint} %lsmagic lists them.")

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self.report(evalue, self.InteractiveTB.stb2text(stb))

    def show_usage_error(self, exc: BaseException) -> None:
        self.report(exc, f"UsageError: {exc}")

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """Show the text of a suggested next cell."""
        self.kernel_display.publish({"text/plain": s})

    def get_parent(self) -> dict[str, Any]:
        return self.kernel.get_parent()

    def set_parent(self, parent: Any) -> None:
        pass

    def enable_gui(self, gui: Any = None) -> None:
        if gui not in (None, "inline", "agg", "asyncio"):
            raise UsageError(f"There is no display for {gui!r} here; figures are shown inline.")

    def ask_exit(self) -> None:
        raise SystemExit(0)


ZMQInteractiveShell.__module__ = "ipykernel.zmqshell"


def _register_as_ipykernel() -> None:
    """Libraries check for ipykernel in sys.modules to know that they are in a notebook."""
    found = importlib.util.find_spec("ipykernel")
    package: Any = sys.modules.setdefault("ipykernel", types.ModuleType("ipykernel"))
    package.__path__ = list(found.submodule_search_locations or []) if found is not None else []
    package.zmqshell = sys.modules.setdefault("ipykernel.zmqshell", types.ModuleType("ipykernel.zmqshell"))
    package.zmqshell.ZMQInteractiveShell = ZMQInteractiveShell
    package.__spec__ = found or importlib.machinery.ModuleSpec("ipykernel", None)
    if found is None:
        package.__version__, package.version_info = "7.0.0", (7, 0, 0)
    else:
        package.__getattr__ = lambda name: getattr(importlib.import_module("ipykernel._version"), name)


_register_as_ipykernel()
InteractiveShellABC.register(ZMQInteractiveShell)


class _MemoryStore(dict[str, Any]):
    """Storage of magics, until the kernel ends."""

    def keys(self, pattern: str = "*") -> Any:
        return [name for name in self if fnmatch.fnmatch(name, pattern)]


class IPythonKernel:
    """The attributes of a kernel that libraries use."""

    def __init__(self, shell: ZMQInteractiveShell) -> None:
        self.shell = shell
        self.shell_streams: list[Any] = []
        self.session = types.SimpleNamespace(session="quire", send=lambda *args, **kwargs: None)
        self.iopub_socket = None
        self.implementation = "ipython"
        self.eventloop = None

    def do_shutdown(self, restart: bool = False) -> None:
        raise SystemExit(0)

    @property
    def comm_manager(self) -> Any:
        import comm

        return comm.get_comm_manager()

    def get_parent(self, channel: Any = None) -> dict[str, Any]:
        header = {"msg_id": f"run-{self.shell.execution_count}", "msg_type": "execute_request"}
        return {"header": header, "content": {"code": self.shell.user_ns.get("In", [""])[-1]}}

    @property
    def execution_count(self) -> int:
        return int(self.shell.execution_count) - 1

    @property
    def _parent_header(self) -> dict[str, Any]:
        return self.get_parent()

    @property
    def user_ns(self) -> dict[str, Any]:
        return self.shell.user_ns


def create_shell() -> ZMQInteractiveShell:
    """Create the shell of this process; its namespace is a placeholder until it is attached."""
    config = Config()
    config.HistoryManager.enabled = False  # otherwise it starts a thread and opens a database
    config.HistoryManager.hist_file = ":memory:"
    config.IPKernelApp.name = "quire"  # tqdm and others look for "IPKernelApp"
    main = sys.modules["__main__"]
    shell: ZMQInteractiveShell = ZMQInteractiveShell.instance(
        config=config, user_module=types.ModuleType("__main__"), ipython_dir=""
    )
    sys.modules["__main__"] = main
    return shell
