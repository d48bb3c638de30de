"""What a library takes from `IPython.core.magic` to define magics of its own."""

from __future__ import annotations

import getopt
from collections.abc import Callable
from typing import Any

from quire.worker.shim import options
from quire.worker.shim.errors import UsageError

MAGIC_NO_VAR_EXPAND_ATTR = "_ipython_magic_no_var_expand"
magic_kinds = ("line", "cell")
magic_spec = ("line", "cell", "line_cell")
_MARK = "_quire_magic"


class Bunch:
    pass


class Magics:
    """Base of classes whose marked methods are magics; `magics_class` collects them."""

    magics: Any = None
    registered = False
    options_table: Any = None

    def __init__(self, shell: Any = None, **kwargs: Any) -> None:
        from quire.worker.shim.shell import current

        self.shell = shell if shell is not None else current()
        self.options_table = {}
        marked = type(self).magics or _collected(type(self))
        self.magics = {
            kind: {name: getattr(self, member) for name, member in table.items()} for kind, table in marked.items()
        }
        for name, value in kwargs.items():
            setattr(self, name, value)

    def parse_options(self, arg_str: str, opt_str: str, *long_opts: str, **kw: Any) -> tuple[Any, Any]:
        """Options as getopt finds them, and the rest: as text, or as a list with mode="list"."""
        try:
            found, rest = getopt.getopt(options.words(arg_str), opt_str, list(long_opts))
        except getopt.GetoptError as error:
            raise UsageError(str(error)) from None
        parsed = Struct()
        for name, value in found:
            key = name.lstrip("-")
            parsed[key] = [*parsed[key], value] if isinstance(parsed.get(key), list) else value
        return parsed, rest if kw.get("mode") == "list" else " ".join(rest)

    def default_option(self, fn: str, optstr: str) -> None:
        self.options_table[fn] = optstr


class Struct(dict[str, Any]):
    """A dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def magics_class(cls: Any) -> Any:
    cls.registered = True
    cls.magics = _collected(cls)
    return cls


def _collected(kind: type) -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {"line": {}, "cell": {}}
    for member in dir(kind):
        for sort, name in getattr(getattr(kind, member, None), _MARK, ()):
            tables[sort][name or member] = member
    return tables


def _method_magic(*kinds: str) -> Callable[..., Any]:
    """Marks a method; with or without a name in brackets."""

    def mark(given: Any = None) -> Any:
        name = given if isinstance(given, str) else ""

        def marked(function: Any) -> Any:
            setattr(function, _MARK, [*getattr(function, _MARK, []), *((kind, name) for kind in kinds)])
            return function

        return marked(given) if callable(given) else marked

    return mark


def _function_magic(kind: str) -> Callable[..., Any]:
    """Registers a function with the running shell; with or without a name in brackets."""

    def register(given: Any = None) -> Any:
        from quire.worker.shim.shell import current

        def registered(function: Any) -> Any:
            shell = current()
            if shell is None:
                raise NameError("A magic can be registered once a notebook runs.")
            shell.register_magic_function(function, kind, given if isinstance(given, str) else None)
            return function

        return registered(given) if callable(given) else registered

    return register


line_magic = _method_magic("line")
cell_magic = _method_magic("cell")
line_cell_magic = _method_magic("line", "cell")
register_line_magic = _function_magic("line")
register_cell_magic = _function_magic("cell")
register_line_cell_magic = _function_magic("line_cell")


def needs_local_scope(function: Any) -> Any:
    function.needs_local_scope = True
    return function


def no_var_expand(function: Any) -> Any:
    setattr(function, MAGIC_NO_VAR_EXPAND_ATTR, True)
    return function


def output_can_be_silenced(function: Any) -> Any:
    return function


def on_off(tag: Any) -> str:
    return "ON" if tag else "OFF"


def compress_dhist(dh: list[str]) -> list[str]:
    return list(dict.fromkeys(dh))
