"""The text form of a value, laid out as notebooks lay it out."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

from quire.worker.shim import forms
from quire.worker.shim.forms import CallExpression, Form, RawStringLiteral, RawText
from quire.worker.shim.layout import Layout

__all__ = [
    "CallExpression",
    "PrettyPrinter",
    "RawStringLiteral",
    "RawText",
    "RepresentationPrinter",
    "for_type",
    "for_type_by_name",
    "pprint",
    "pretty",
]

PrettyPrinter = Layout
MAX_SEQ_LENGTH = 1000


def pretty(value: object, width: int = 79) -> str:
    """The value as text."""
    return laid_out(value, max_width=width)


def laid_out(
    value: object,
    verbose: bool = False,
    max_width: int = 79,
    newline: str = "\n",
    max_seq_length: int = MAX_SEQ_LENGTH,
) -> str:
    """The same with all that `IPython.lib.pretty.pretty` lets one say."""
    text = io.StringIO()
    printer = RepresentationPrinter(text, verbose, max_width, newline, max_seq_length=max_seq_length)
    printer.pretty(value)
    printer.flush()
    return text.getvalue()


def pprint(value: object, *layout: Any, **named: Any) -> None:
    sys.stdout.write(laid_out(value, *layout, **named) + "\n")


def for_type(kind: type, form: Form | None) -> Form | None:
    """Print instances of this type with `form(value, printer, cycle)` from now on; the form it had."""
    before = forms.BY_TYPE.get(kind)
    if form is not None:
        forms.BY_TYPE[kind] = form
    return before


def for_type_by_name(module: str, name: str, form: Form | None) -> Form | None:
    """The same for a type that need not be imported yet."""
    before = forms.BY_NAME.get((module, name))
    if form is not None:
        forms.BY_NAME[module, name] = form
    return before


class RepresentationPrinter(Layout):
    """A layout that also knows how values look."""

    def __init__(
        self,
        output: Any,
        verbose: bool = False,
        max_width: int = 79,
        newline: str = "\n",
        singleton_pprinters: dict[int, Form] | None = None,
        type_pprinters: dict[type, Form] | None = None,
        deferred_pprinters: dict[tuple[str, str], Form] | None = None,
        max_seq_length: int = MAX_SEQ_LENGTH,
    ) -> None:
        super().__init__(output, max_width, newline, max_seq_length)
        self.verbose = verbose
        self.stack: list[int] = []  # ids of what is being printed
        self.singleton_pprinters = singleton_pprinters or {}
        self.type_pprinters = forms.BY_TYPE if type_pprinters is None else type_pprinters
        self.deferred_pprinters = forms.BY_NAME if deferred_pprinters is None else deferred_pprinters

    def pretty(self, obj: object) -> None:
        cycle = id(obj) in self.stack
        self.stack.append(id(obj))
        self.begin_group()
        try:
            self._form(obj)(obj, self, cycle)
        finally:
            self.end_group()
            self.stack.pop()

    def _form(self, value: object) -> Callable[..., Any]:
        """Of the most special class that says how it looks."""
        if id(value) in self.singleton_pprinters:
            return self.singleton_pprinters[id(value)]
        for kind in _lineage(value):
            own = vars(kind)
            named = (_quietly(kind, "__module__"), _quietly(kind, "__name__"))
            if kind in self.type_pprinters:
                return self.type_pprinters[kind]
            if named in self.deferred_pprinters:
                return self.deferred_pprinters[named]
            if "_repr_pretty_" in own and callable(kind._repr_pretty_):
                method: Callable[..., Any] = kind._repr_pretty_
                return method
            if kind is not object and "__repr__" in own and callable(_quietly(kind, "__repr__")):
                return forms.as_repr
        return forms.as_address


def _lineage(value: object) -> tuple[Any, ...]:
    kind: Any = _quietly(value, "__class__") or type(value)
    try:
        lineage: tuple[Any, ...] = kind.__mro__
    except Exception:  # a proxy that says it is of a class that is none
        lineage = type(value).__mro__
    return lineage


def _quietly(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:
        return None
