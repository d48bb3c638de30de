"""display() and its kin: values shown now, and shown again under an id."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any


def _shell() -> Any:
    from quire.worker.shim.finder import get_ipython

    return get_ipython()


class DisplayHandle:
    """Something shown, to be shown otherwise later."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = display_id if display_id is not None else _new_id()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} display_id={self.display_id}>"

    def display(self, obj: Any, **named: Any) -> None:
        display(obj, display_id=self.display_id, **named)

    def update(self, obj: Any, **named: Any) -> None:
        update_display(obj, display_id=self.display_id, **named)


def _new_id() -> str:
    return os.urandom(16).hex()


def display(
    *objs: Any,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    metadata: dict[str, Any] | None = None,
    transient: dict[str, Any] | None = None,
    display_id: str | bool | None = None,
    raw: bool = False,
    clear: bool = False,
    **named: Any,
) -> DisplayHandle | None:
    """Show each value now; with raw=True each is a MIME bundle. A display_id gives a handle to update it by."""
    if _shell() is None:
        print(*objs)
        return None
    transient = dict(transient or {})
    if display_id:
        transient["display_id"] = display_id = _new_id() if display_id is True else display_id
    if named.get("update") and "display_id" not in transient:
        raise TypeError("An update needs the display_id of what it updates.")
    if clear:
        clear_output(wait=True)
    if not objs and display_id:
        objs, raw = ({},), True  # a place to be filled later
    for value in objs:
        if raw:
            publish_display_data(value, metadata, transient=transient, **named)
        else:
            _show(value, include, exclude, metadata or {}, transient, named)
    return DisplayHandle(str(display_id)) if display_id else None


def _show(
    value: Any,
    include: Iterable[str] | None,
    exclude: Iterable[str] | None,
    metadata: dict[str, Any],
    transient: dict[str, Any],
    named: dict[str, Any],
) -> None:
    data, found = _shell().display_formatter.format(value, include=include, exclude=exclude)
    if data:
        publish_display_data(data, _merged(found, metadata), transient=transient, **named)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both, one level into the other; where they differ, the second."""
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def update_display(obj: Any, *, display_id: str, **named: Any) -> None:
    display(obj, display_id=display_id, update=True, **named)


def publish_display_data(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    transient: dict[str, Any] | None = None,
    **named: Any,
) -> None:
    """Show a MIME bundle."""
    named.pop("source", None)
    _shell().display_pub.publish(data, metadata, transient=transient, **named)


def clear_output(wait: bool = False) -> None:
    """Take back what this cell has shown; with `wait`, when something new is shown."""
    if _shell() is not None:
        _shell().display_pub.clear_output(wait)


def _display_as(mime: str, named_as: str) -> Callable[..., None]:
    def show(*objs: Any, **given: Any) -> None:
        metadata = given.pop("metadata", None)
        if given.pop("raw", False):
            for value in objs:
                publish_display_data({mime: value}, {mime: metadata} if metadata else None)
        else:
            display(*objs, metadata=metadata, include=["text/plain", mime], **given)

    show.__name__ = show.__qualname__ = f"display_{named_as}"
    show.__doc__ = f"Show values by their {mime} form."
    return show


display_pretty = _display_as("text/plain", "pretty")
display_html = _display_as("text/html", "html")
display_markdown = _display_as("text/markdown", "markdown")
display_svg = _display_as("image/svg+xml", "svg")
display_png = _display_as("image/png", "png")
display_jpeg = _display_as("image/jpeg", "jpeg")
display_latex = _display_as("text/latex", "latex")
display_json = _display_as("application/json", "json")
display_javascript = _display_as("application/javascript", "javascript")
display_pdf = _display_as("application/pdf", "pdf")
