"""Values to MIME bundles: forms registered by type first, then what the value's own `_repr_*_` methods say."""

from __future__ import annotations

import inspect
import io
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from quire.worker.shim import forms
from quire.worker.shim.pretty import RepresentationPrinter

_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "application/pdf": "_repr_pdf_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "application/json": (list, dict),
    "application/pdf": (bytes, str),
    "image/png": (bytes, str),
    "image/jpeg": (bytes, str),
}
_CANARY = "_ipython_canary_method_should_not_exist_"
_MISSING = object()


class Formatter:
    """One MIME type's forms."""

    def __init__(self, mime: str, method: str) -> None:
        self.format_type = mime
        self.print_method = method
        self.enabled = True
        self.type_printers: dict[Any, Callable[..., Any]] = {}
        self.deferred_printers: dict[tuple[str, str], Callable[..., Any]] = {}
        self.singleton_printers: dict[int, Callable[..., Any]] = {}

    def __call__(self, value: Any) -> Any:
        """The form, or (form, metadata); None where it has none."""
        if not self.enabled:
            return None
        return self._checked(value, quietly(self._form, value))

    def _form(self, value: Any) -> Any:
        printer = self.registered(value)
        if printer is not None:
            return printer(value)
        method = own_method(value, self.print_method)
        return None if method is None else method()

    def _checked(self, value: Any, form: Any) -> Any:
        data = form[0] if isinstance(form, tuple) and form else form
        kinds = _TYPES.get(self.format_type, (str,))
        if data is None or isinstance(data, kinds):
            return form
        sys.stderr.write(
            f"{self.format_type}: a form of {type(value).__name__} is a {type(data).__name__}; left out.\n"
        )
        return None

    def registered(self, value: Any) -> Callable[..., Any] | None:
        try:
            return self.lookup(value)
        except KeyError:
            return None

    def lookup(self, obj: Any) -> Callable[..., Any]:
        if id(obj) in self.singleton_printers:
            return self.singleton_printers[id(obj)]
        return self.lookup_by_type(getattr(obj, "__class__", None) or type(obj))

    def lookup_by_type(self, typ: type | str) -> Callable[..., Any]:
        """The form of a type or of one it derives from; KeyError where there is none."""
        if isinstance(typ, str):
            module, _, name = typ.rpartition(".")
            if (module, name) in self.deferred_printers:
                return self.deferred_printers[module, name]
            for kind, form in self.type_printers.items():
                if (kind.__module__, kind.__name__) == (module, name):
                    return form
            raise KeyError(f"No registered printer for {typ}")
        for kind in getattr(typ, "__mro__", ()):
            if kind in self.type_printers:
                return self.type_printers[kind]
            named = (getattr(kind, "__module__", None), getattr(kind, "__name__", None))
            if named in self.deferred_printers:
                return self.deferred_printers[named]
        raise KeyError(f"No registered printer for {typ}")

    def for_type(self, typ: type | str, func: Callable[..., Any] | None = None) -> Callable[..., Any] | None:
        """Register a form; the one there was before."""
        if isinstance(typ, str):
            module, _, name = typ.rpartition(".")
            return self.for_type_by_name(module, name, func)
        try:
            before: Callable[..., Any] | None = self.lookup_by_type(typ)
        except KeyError:
            before = None
        if func is not None:
            self.type_printers[typ] = func
        return before

    def for_type_by_name(
        self, type_module: str, type_name: str, func: Callable[..., Any] | None = None
    ) -> Callable[..., Any] | None:
        before = self.deferred_printers.get((type_module, type_name))
        if func is not None:
            self.deferred_printers[type_module, type_name] = func
        return before

    def pop(self, typ: type | str, default: Any = _MISSING) -> Any:
        if isinstance(typ, str):
            module, _, name = typ.rpartition(".")
            found = self.deferred_printers.pop((module, name), default)
        else:
            found = self.type_printers.pop(typ, default)
        if found is _MISSING:
            raise KeyError(f"No registered value for {typ!r}")
        return found

    def __contains__(self, typ: Any) -> bool:
        try:
            self.lookup_by_type(typ)
        except KeyError:
            return False
        return True


class PlainText(Formatter):
    """text/plain: forms get a printer to write to."""

    def __init__(self) -> None:
        super().__init__("text/plain", "_repr_pretty_")
        self.pprint = True
        self.max_width = 79
        self.max_seq_length = 1000
        self.newline = "\n"
        self.verbose = False
        self.float_format = ""
        self.type_printers = dict(forms.BY_TYPE)
        self.deferred_printers = dict(forms.BY_NAME)

    def _form(self, value: Any) -> Any:
        if not self.pprint:
            return repr(value)
        text = io.StringIO()
        printer = RepresentationPrinter(
            text,
            self.verbose,
            self.max_width,
            self.newline,
            self.singleton_printers,
            self.type_printers,
            self.deferred_printers,
            self.max_seq_length,
        )
        printer.pretty(value)
        printer.flush()
        return text.getvalue()

    def is_as_made(self, kind: type) -> bool:
        """Whether this type still has the form it had at first."""
        return self.pprint and self.type_printers.get(kind) is forms.BY_TYPE.get(kind)

    def format_floats(self, how: str) -> None:
        """How floats are written, as `%precision` says it: a number of digits, a %-format, nothing for repr."""
        self.float_format = f"%.{int(how)}f" if how.isdigit() else how
        if self.float_format:
            self.float_format % 3.14159  # raises where it is none
            self.type_printers[float] = lambda value, p, cycle: p.text(self.float_format % value)
        else:
            self.type_printers[float] = forms.as_repr


class DisplayFormatter:
    """All forms of a value; none of one that shows itself when asked."""

    def __init__(self) -> None:
        self.formatters: dict[str, Formatter] = {"text/plain": PlainText()}
        for mime, method in _METHODS.items():
            self.formatters[mime] = Formatter(mime, method)
        self.active_types = list(self.formatters)
        self.mimebundle_formatter = Formatter("", "_repr_mimebundle_")
        self.ipython_display_formatter = Formatter("", "_ipython_display_")
        self._last: tuple[Any, Any] = (None, None)

    @property
    def format_types(self) -> list[str]:
        return list(self.formatters)

    def format(
        self, obj: Any, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if quietly(self._shows_itself, obj):
            return {}, {}
        data, metadata = self._whole(obj, include, exclude)
        for mime, formatter in self.formatters.items():
            if mime in data or not wanted(mime, include, exclude):
                continue
            form = formatter(obj)
            if isinstance(form, tuple) and len(form) == 2:
                form, metadata[mime] = form
            if form is not None:
                data[mime] = form
        self._last = (data, obj)
        return data, {mime: each for mime, each in metadata.items() if each is not None}

    def value_of(self, data: dict[str, Any]) -> Any:
        """What was formatted last, where that gave this bundle: whoever publishes it knows what it is of."""
        (made, value), self._last = self._last, (None, None)
        return value if made is data else None

    def _shows_itself(self, value: Any) -> bool:
        show = self.ipython_display_formatter.registered(value)
        if show is not None:
            show(value)
            return True
        method = own_method(value, "_ipython_display_")
        return method is not None and (method(), True)[1]

    def _whole(
        self, value: Any, include: Iterable[str] | None, exclude: Iterable[str] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the value says of itself all at once."""

        def ask() -> Any:
            form = self.mimebundle_formatter.registered(value)
            if form is not None:
                return form(value, include=include, exclude=exclude)
            method = own_method(value, "_repr_mimebundle_")
            return None if method is None else method(include=include, exclude=exclude)

        found = quietly(ask) or {}
        data, metadata = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        data, metadata = (
            {mime: each for mime, each in dict(half or {}).items() if wanted(mime, include, exclude)}
            for half in (data, metadata)
        )
        return data, metadata


def wanted(mime: str, include: Iterable[str] | None, exclude: Iterable[str] | None) -> bool:
    return (not include or mime in include) and (not exclude or mime not in exclude)


def own_method(value: Any, name: str) -> Callable[..., Any] | None:
    """The value's method; None for a class, and for a value that answers to every name."""
    if inspect.isclass(value):
        return None
    try:
        if getattr(value, _CANARY, None) is not None:
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def quietly(ask: Callable[..., Any], *given: Any) -> Any:
    """What it answers; a form it does not have is None, and one that fails is told on stderr and is None."""
    try:
        return ask(*given)
    except NotImplementedError:
        return None
    except Exception as error:
        sys.stderr.write("".join(traceback.format_exception(error.with_traceback(_from_user(error)))))
        return None


def _from_user(error: BaseException) -> Any:
    """The traceback without our own frames at its top."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


_OURS = (__file__, inspect.getfile(RepresentationPrinter), forms.__file__)
