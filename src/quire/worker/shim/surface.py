"""The rest of what libraries ask of a shell: most of it answers, little of it does anything here."""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

from quire.worker.shim.errors import UsageError
from quire.worker.shim.settings import inline
from quire.worker.shim.transform import clean, transform

_TRAITS = ("kernel", "config", "user_ns", "display_formatter", "display_pub", "ast_node_interactivity", "colors")


class Config(dict[str, Any]):
    """Settings by section; it has the one that says this is a notebook."""

    def __init__(self) -> None:
        super().__init__(IPKernelApp={"name": "quire", "connection_file": ""})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.setdefault(name, Section())


class Section(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Kernel:
    """What libraries look for in a kernel."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.shell_streams: list[Any] = []
        self.session = types.SimpleNamespace(session="quire", send=lambda *args, **named: None, msg_id="")
        self.iopub_socket = None
        self.eventloop = None
        self.comm_manager = Comms()

    def get_parent(self, channel: Any = None) -> dict[str, Any]:
        count = self.shell.execution_count
        return {"header": {"msg_id": f"run-{count}", "msg_type": "execute_request"}, "content": {}, "metadata": {}}

    @property
    def _parent_header(self) -> dict[str, Any]:
        return self.get_parent()

    @property
    def user_ns(self) -> Any:
        return self.shell.user_ns


class Comms:
    """Nobody is at the other end of a comm."""

    def __init__(self) -> None:
        self.targets: dict[str, Any] = {}
        self.comms: dict[str, Any] = {}

    def register_target(self, target_name: str, f: Any) -> None:
        self.targets[target_name] = f

    def unregister_target(self, target_name: str, f: Any = None) -> None:
        self.targets.pop(target_name, None)

    def register_comm(self, comm: Any) -> str:
        self.comms[comm.comm_id] = comm
        return str(comm.comm_id)

    def unregister_comm(self, comm: Any) -> None:
        self.comms.pop(comm.comm_id, None)


class Publisher:
    """What is shown goes to the kernel from here."""

    def __init__(self, shell: Any, publish: Callable[..., None], clear: Callable[[bool], None]) -> None:
        self.shell = shell
        self._publish = publish
        self._clear = clear
        try:
            self._takes_value = "value" in inspect.signature(publish).parameters
        except (TypeError, ValueError):
            self._takes_value = False

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *args: Any,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **more: Any,
    ) -> None:
        if not isinstance(data, dict):
            raise TypeError(f"What is shown is a dict of forms by MIME type, not {type(data).__name__}.")
        value = self.shell.display_formatter.value_of(data)
        given = {"value": value} if self._takes_value else {}
        self._publish(data, metadata or {}, transient or {}, update, **given)

    def clear_output(self, wait: bool = False) -> None:
        self._clear(wait)

    def register_hook(self, hook: Any) -> None:
        """Hooks change messages, and there are none here."""

    unregister_hook = register_hook


class Transforms:
    """Functions on a list of lines: before ours, and after."""

    def __init__(self) -> None:
        self.cleanup_transforms: list[Callable[[list[str]], list[str]]] = []
        self.line_transforms: list[Callable[[list[str]], list[str]]] = []
        self.token_transformers: list[Any] = []

    def transform_cell(self, cell: str) -> str:
        if self.cleanup_transforms:
            cell = _through(self.cleanup_transforms, clean(cell))
        cell = transform(cell)
        return _through(self.line_transforms, cell) if self.line_transforms else cell

    def check_complete(self, cell: str) -> tuple[str, int | None]:
        try:
            compile(self.transform_cell(cell), "<cell>", "exec", dont_inherit=True)
        except SyntaxError:
            return "invalid", None
        return "complete", None


def _through(functions: list[Callable[[list[str]], list[str]]], code: str) -> str:
    lines = code.splitlines(keepends=True)
    for function in functions:
        lines = function(lines)
    return "".join(lines)


class InteractiveShell:
    """What a library imports to look at a shell, or to set how values are shown."""

    ast_node_interactivity = "last_expr"
    colors = "nocolor"
    autoindent = False
    banner1 = ""
    _shells: ClassVar[list[Any]] = []

    @classmethod
    def instance(cls, *args: Any, **named: Any) -> Any:
        from quire.worker.shim.shell import current

        return current()

    @classmethod
    def initialized(cls) -> bool:
        return cls.instance() is not None


class _Surface(InteractiveShell):
    """Answers that need nothing of the shell but its parts."""

    execution_count = 1  # set by the executor
    custom_exceptions: tuple[type[BaseException], ...] = ()
    display_trap: Any = contextlib.nullcontext()  # values are shown by the executor's own hook
    _handler: Any = None
    user_ns: dict[str, Any]
    input_transformer_manager: Transforms
    events: Any
    extension_manager: Any
    config: Any
    kernel: Any

    @property
    def input_transformers_cleanup(self) -> list[Callable[[list[str]], list[str]]]:
        return self.input_transformer_manager.cleanup_transforms

    @property
    def input_transformers_post(self) -> list[Callable[[list[str]], list[str]]]:
        return self.input_transformer_manager.line_transforms

    @property
    def user_module(self) -> Any:
        return types.SimpleNamespace(__dict__=self.user_ns, __name__="__main__")

    @property
    def history_manager(self) -> Any:
        inputs = self.user_ns.get("In", [""])
        return types.SimpleNamespace(
            input_hist_raw=inputs, input_hist_parsed=inputs, output_hist=self.user_ns.get("Out", {}), enabled=False
        )

    @property
    def parent(self) -> Any:
        return self.kernel

    def has_trait(self, name: str) -> bool:
        return name in _TRAITS

    def traits(self, **metadata: Any) -> dict[str, Any]:
        return dict.fromkeys(_TRAITS)

    def trait_names(self, **metadata: Any) -> list[str]:
        return list(_TRAITS)

    def get_parent(self) -> Any:
        return self.kernel.get_parent()

    def set_parent(self, parent: Any) -> None:
        """Every request is this notebook's own."""

    def get_local_scope(self, stack_depth: int) -> Any:
        return sys._getframe(stack_depth + 1).f_locals

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """The text of a next cell, which is for whoever reads to run."""
        print(s)

    def enable_gui(self, gui: Any = None) -> None:
        if gui not in (None, "inline", "agg"):
            raise UsageError(f"There is no display for {gui!r} here; figures are shown inline.")

    def enable_matplotlib(self, gui: Any = None) -> tuple[str, str]:
        return "inline", "inline"

    def enable_pylab(self, gui: Any = None, import_all: bool = True, welcome_message: bool = False) -> Any:
        from quire.worker.shim.magics.figures import pylab_names

        self.user_ns.update(pylab_names(import_all))
        return "inline", "inline", ()

    def register_post_execute(self, func: Callable[..., Any]) -> None:
        self.events.register("post_execute", func)

    def del_var(self, varname: str, by_name: bool = False) -> None:
        if varname not in self.user_ns:
            raise NameError(f"name {varname!r} is not defined")
        del self.user_ns[varname]

    def drop_by_id(self, variables: dict[str, Any]) -> None:
        for name, value in variables.items():
            if self.user_ns.get(name) is value:
                del self.user_ns[name]

    def set_custom_exc(self, exc_tuple: tuple[type[BaseException], ...], handler: Any) -> None:
        """Have these errors reported by `handler(shell, type, error, traceback, tb_offset=None)`."""
        self.custom_exceptions = tuple(exc_tuple) if handler is not None else ()
        self._handler = handler

    def CustomTB(self, etype: Any, value: BaseException, tb: Any, tb_offset: Any = None) -> Any:
        return self._handler(self, etype, value, tb, tb_offset=tb_offset)

    def get_ipython(self) -> Any:
        return self

    def set_hook(self, name: str, hook: Any, priority: int = 50, **named: Any) -> None:
        """There is nothing here that hooks could change."""

    def show_usage(self) -> None:
        print("Cells are Python with IPython's %magics, !commands and obj? for help. %lsmagic lists the magics.")

    def ask_exit(self) -> None:
        raise SystemExit(0)

    @property
    def inline(self) -> Any:
        return inline
