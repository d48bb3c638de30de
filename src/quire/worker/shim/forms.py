"""How values of the standard types look, each as calls on a printer."""

from __future__ import annotations

import inspect
import os
import re
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

Form = Callable[[Any, Any, bool], Any]
"""Writes a value to a printer; the last argument says that the value is inside itself."""

_BUILTIN = (None, "builtins", "__builtin__", "exceptions")


class CallExpression:
    """A value that looks like a call: `name(argument, …, key=value)`."""

    def __init__(__self, __name: str, *args: Any, **kwargs: Any) -> None:  # `self` may be a key
        __self.callable_name = __name
        __self.args = args
        __self.kwargs = kwargs

    @classmethod
    def factory(cls, name: str) -> Callable[..., CallExpression]:
        return lambda *args, **kwargs: cls(name, *args, **kwargs)

    def _repr_pretty_(self, p: Any, cycle: bool) -> None:
        start = f"{self.callable_name}("
        with p.group(len(start), start, ")"):
            for number, (key, value) in enumerate([*(("", each) for each in self.args), *self.kwargs.items()]):
                if number:
                    p.text(",")
                    p.breakable()
                if not key:
                    p.pretty(value)
                    continue
                with p.group(len(key) + 1, f"{key}="):
                    p.pretty(value)


class RawText:
    """Text that is written as it is."""

    def __init__(self, value: str) -> None:
        self.value = value

    def _repr_pretty_(self, p: Any, cycle: bool) -> None:
        p.text(self.value)


class RawStringLiteral:
    """Text written as a raw string where it can be."""

    def __init__(self, value: str) -> None:
        self.value = value

    def _repr_pretty_(self, p: Any, cycle: bool) -> None:
        p.text(f"r{self.value!r}".replace("\\\\", "\\"))


def as_repr(value: Any, p: Any, cycle: bool) -> None:
    with p.group():
        for number, line in enumerate(repr(value).splitlines()):
            if number:
                p.break_()
            p.text(line)


def as_address(value: Any, p: Any, cycle: bool) -> None:
    """A value whose class does not say how it looks."""
    kind = getattr(value, "__class__", None) or type(value)
    if getattr(kind, "__repr__", None) is not object.__repr__:
        as_repr(value, p, cycle)
        return
    p.begin_group(1, "<")
    p.pretty(kind)
    p.text(f" at 0x{id(value):x}")
    if cycle:
        p.text(" ...")
    elif p.verbose:
        _attributes(value, p)
    p.end_group(1, ">")


def _attributes(value: Any, p: Any) -> None:
    for number, name in enumerate(name for name in dir(value) if not name.startswith("_")):
        try:
            held = getattr(value, name)
        except AttributeError:
            continue
        if isinstance(held, types.MethodType):
            continue
        if number:
            p.text(",")
        p.breakable()
        p.text(name)
        p.text("=")
        p.begin_group(len(name) + 1)
        p.pretty(held)
        p.end_group(len(name) + 1)


def _sequence(start: str, end: str) -> Form:
    def form(value: Any, p: Any, cycle: bool) -> None:
        if cycle:
            p.text(f"{start}...{end}")
            return
        p.begin_group(len(start), start)
        _items(value, p)
        if len(value) == 1 and isinstance(value, tuple):
            p.text(",")  # what makes it one
        p.end_group(len(start), end)

    return form


def _items(values: Iterable[Any], p: Any) -> None:
    for number, item in p.numbered(values):
        if number:
            p.text(",")
            p.breakable()
        p.pretty(item)


def _set(start: str, end: str, empty: str) -> Form:
    def form(value: Any, p: Any, cycle: bool) -> None:
        if cycle:
            p.text(f"{start}...{end}")
        elif not len(value):
            p.text(empty)
        else:
            p.begin_group(len(start), start)
            most = p.max_seq_length
            _items(value if most and len(value) >= most else _in_order(value), p)
            p.end_group(len(start), end)

    return form


def _in_order(values: Iterable[Any]) -> list[Any]:
    found = list(values)
    for key in (None, str):
        with suppress(Exception):
            return sorted(found, key=key)
    return found


def _mapping(start: str, end: str) -> Form:
    def form(value: Any, p: Any, cycle: bool) -> None:
        if cycle:
            p.text("{...}")
            return
        p.begin_group(len(start), start)
        for number, key in p.numbered(value.keys()):
            if number:
                p.text(",")
                p.breakable()
            p.pretty(key)
            p.text(": ")
            p.pretty(value[key])
        p.end_group(len(start), end)

    return form


def _called(arguments: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]) -> Form:
    """A form for classes that look like a call of themselves."""

    def form(value: Any, p: Any, cycle: bool) -> None:
        given, named = ((RawText("..."),), {}) if cycle else arguments(value)
        p.pretty(CallExpression(value.__class__.__name__, *given, **named))

    return form


def _namespace(value: Any, p: Any, cycle: bool) -> None:
    name = "namespace" if type(value) is types.SimpleNamespace else value.__class__.__name__
    given = CallExpression(name, RawText("...")) if cycle else CallExpression(name, **value.__dict__)
    p.pretty(given)


def _exception(value: Any, p: Any, cycle: bool) -> None:
    kind = value.__class__
    home = "" if kind.__module__ in _BUILTIN else f"{kind.__module__}."
    p.pretty(CallExpression(home + kind.__qualname__, *getattr(value, "args", ())))


def _super(value: Any, p: Any, cycle: bool) -> None:
    with p.group(8, "<super: ", ">"):
        p.pretty(value.__thisclass__)
        p.text(",")
        p.breakable()
        p.pretty(value.__self__)


_FLAGS = (
    "TEMPLATE",
    "IGNORECASE",
    "LOCALE",
    "MULTILINE",
    "DOTALL",
    "UNICODE",
    "VERBOSE",
    "DEBUG",
)


def _pattern(value: Any, p: Any, cycle: bool) -> None:
    given: list[Any] = [RawStringLiteral(value.pattern)]
    left = value.flags
    names = []
    for name in _FLAGS:
        flag = getattr(re, name, 0)
        if flag and left & flag:
            names.append(f"re.{name}")
            left &= ~flag
    if left:
        names.append(str(int(left)))
    if names:
        given.append(RawText("|".join(names)))
    p.pretty(CallExpression("re.compile", *given))


def _class(value: Any, p: Any, cycle: bool) -> None:
    who = next((kind for kind in type(value).__mro__ if "__repr__" in vars(kind)), type)
    if who is not type:  # its metaclass says how it looks
        as_repr(value, p, cycle)
        return
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        name = value.__name__ if isinstance(value.__name__, str) else "<unknown type>"
    home = getattr(value, "__module__", None)
    p.text(name if home in _BUILTIN else f"{home}.{name}")


def _function(value: Any, p: Any, cycle: bool) -> None:
    name = getattr(value, "__qualname__", value.__name__)
    if value.__module__ and value.__module__ not in _BUILTIN:
        name = f"{value.__module__}.{name}"
    with suppress(ValueError):
        name += str(inspect.signature(value))
    p.text(f"<function {name}>")


_mapping_proxy = _mapping("mappingproxy({", "})")

BY_TYPE: dict[Any, Form] = {
    **dict.fromkeys(
        (int, float, str, bytes, slice, range, types.MethodType, type(None), bool, type(...), type(NotImplemented)),
        as_repr,
    ),
    tuple: _sequence("(", ")"),
    list: _sequence("[", "]"),
    dict: _mapping("{", "}"),
    set: _set("{", "}", "set()"),
    frozenset: _set("frozenset({", "})", "frozenset()"),
    super: _super,
    re.Pattern: _pattern,
    type: _class,
    types.FunctionType: _function,
    types.BuiltinFunctionType: _function,
    types.SimpleNamespace: _namespace,
    types.MappingProxyType: _mapping_proxy,
    BaseException: _exception,
    type(os.environ): _mapping("environ{", "}"),
}

BY_NAME: dict[tuple[str, str], Form] = {
    ("collections", "defaultdict"): _called(lambda value: ((value.default_factory, dict(value)), {})),
    ("collections", "OrderedDict"): _called(lambda value: ((list(value.items()),) if len(value) else (), {})),
    ("collections", "Counter"): _called(lambda value: ((dict(value.most_common()),) if len(value) else (), {})),
    ("collections", "deque"): _called(
        lambda value: ((list(value),), {} if value.maxlen is None else {"maxlen": value.maxlen})
    ),
    ("collections", "UserList"): _called(lambda value: ((value.data,), {})),
}
