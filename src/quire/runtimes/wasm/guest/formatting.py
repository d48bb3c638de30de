"""What values look like in a guest: the MIME types that they give themselves, and their text."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from quire.worker.execution import errors

_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/pdf": "_repr_pdf_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}
_ANY_NAME = "_ipython_canary_method_should_not_exist_"  # objects that have it answer to every name
_WIDTH = 79  # characters of a line
_ITEMS = 1000  # of a container that are shown
_BRACKETS: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def format_value(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its forms by MIME type, and their metadata; nothing for a value that shows itself when asked."""
    show = _own_method(value, "_ipython_display_")
    if show is not None and _ask(lambda: (show(),)) is not None:
        return {}, {}
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if (bundle := _own_method(value, "_repr_mimebundle_")) is not None:
        _add_bundle(_ask(lambda: bundle(include=None, exclude=None)), data, metadata)
    for mime, name in _METHODS.items():
        if mime not in data and (method := _own_method(value, name)) is not None:
            form = _ask(method)
            if isinstance(form, tuple) and len(form) == 2:
                form, metadata[mime] = form
            if form is not None:
                data[mime] = form
    if "text/plain" not in data and (text := _ask(lambda: text_of(value))) is not None:
        data["text/plain"] = text
    return data, metadata


def _add_bundle(bundle: Any, data: dict[str, Any], metadata: dict[str, Any]) -> None:
    given, about = bundle if isinstance(bundle, tuple) and len(bundle) == 2 else (bundle, None)
    data.update(given or {})
    metadata.update(about or {})


def _own_method(value: Any, name: str) -> Callable[..., Any] | None:
    """None for a class, and for a value that answers to every name."""
    if issubclass(type(value), type):  # isinstance would ask the value's own __class__, which may raise
        return None
    try:
        method = getattr(value, name, None)
        if method is None or getattr(value, _ANY_NAME, None) is not None:
            return None
    except Exception:
        return None
    return method if callable(method) else None


def _ask(method: Callable[[], Any]) -> Any:
    """What it returns; None where it fails, which is told on stderr."""
    try:
        return method()
    except NotImplementedError:
        return None
    except Exception as error:
        sys.stderr.write(f"{errors.format_traceback(error)}\n")
        return None


def text_of(value: Any) -> str:
    """Its text; a container over several lines where it does not fit one, as IPython lays it out."""
    try:
        return _laid_out(value, 0, [])
    except RecursionError:  # nested too deeply
        return repr(value)


def _laid_out(value: Any, indent: int, inside: list[int]) -> str:
    brackets = _brackets(value)
    if brackets is None:
        return _named(value)
    opening, closing = brackets
    if id(value) in inside:
        return f"{opening}...{closing}"
    inside.append(id(value))
    indent += len(opening)
    items = list(_items(value, indent, inside))
    inside.pop()
    if isinstance(value, tuple) and len(value) == 1:
        items[0] += ","
    line = f"{opening}{', '.join(items)}{closing}"
    if len(line) + indent - len(opening) <= _WIDTH and "\n" not in line:
        return line
    separator = ",\n" + " " * indent
    return f"{opening}{separator.join(items)}{closing}"


def _brackets(value: Any) -> tuple[str, str] | None:
    """Of a container of the standard kinds; None of what says itself how it looks."""
    if isinstance(value, (set, frozenset)) and not value:
        return None
    for kind, brackets in _BRACKETS.items():
        if isinstance(value, kind) and type(value).__repr__ == kind.__repr__:
            return brackets
    return None


def _items(value: Any, indent: int, inside: list[int]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in islice(value.items(), _ITEMS):
            yield f"{_laid_out(key, indent, inside)}: {_laid_out(item, indent, inside)}"
    else:
        for item in islice(_sorted(value) if isinstance(value, (set, frozenset)) else value, _ITEMS):
            yield _laid_out(item, indent, inside)
    if len(value) > _ITEMS:
        yield "..."


def _sorted(values: Any) -> list[Any]:
    try:
        return sorted(values)
    except Exception:
        return list(values)


def _named(value: Any) -> str:
    """A class and a function by their names, anything else by its repr."""
    if type(value) is type or inspect.isfunction(value):
        home = "" if value.__module__ in ("builtins", None) else f"{value.__module__}."
        if type(value) is type:
            return f"{home}{value.__qualname__}"
        return f"<function {home}{value.__qualname__}{inspect.signature(value)}>"
    return repr(value)
