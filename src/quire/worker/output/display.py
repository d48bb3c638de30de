"""Send what cells show: MIME bundles, with additions for models."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from quire.wire.messages import Bundle, Cleared, Displayed
from quire.worker.output import tables
from quire.worker.output.previews import with_preview

CURRENT_TEXT = "text/vnd.quire.now"
"""A widget's current text; its text/plain is from when it was shown."""

_PLAIN = "text/plain"
_MAX_TEXT_CHARS = 2_000_000
_BINARY_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


class Display:
    """One per kernel. A widget that captures output adds itself to `captures`."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self.captures: list[OutputCapture] = []
        self.describe_widget: Callable[[dict[str, Any], str], dict[str, Any]] | None = None
        self.after_cell: Callable[[], None] | None = None  # called at the end of a cell
        self._widget_number = 0

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        *,
        value: Any = None,
        result: bool = False,
    ) -> None:
        """Show a bundle; `value` is the object it was made from, if known."""
        if self.captures:
            self.captures[-1].shown(data, metadata or {}, result)
            return
        display_id = str((transient or {}).get("display_id") or "")
        if WIDGET in data and self.describe_widget is not None:
            self._widget_number += 1
            display_id = display_id or f"widget-{self._widget_number}"
            data = {**data, **self.describe_widget(data, display_id)}
        self._emit(self._event(data, metadata or {}, value, result, display_id, update), more=result)

    def show_text(self, text: str) -> None:
        """Show the value of a cell as this short text."""
        if self.captures:
            self.publish({_PLAIN: text}, result=True)
        else:
            self._emit(Displayed(kind="execute_result", bundle={_PLAIN: text}, result=True), more=True)

    def _event(
        self, data: dict[str, Any], metadata: dict[str, Any], value: Any, result: bool, display_id: str, update: bool
    ) -> Displayed:
        bundle = clean_bundle(data)
        about: dict[str, str] = {}
        if type(value).__module__ == "matplotlib.figure":
            about["source"] = "matplotlib"
        table = tables.register_table(value)
        if table is not None:
            bundle[tables.TABLE], about["table"] = table
        return Displayed(
            kind=_kind(bundle),
            bundle=with_preview(bundle, value),
            metadata=metadata,
            about=about,
            result=result,
            display_id=display_id,
            update=update,
        )

    def clear(self, wait: bool = False) -> None:
        if self.captures:
            self.captures[-1].cleared(wait)
        else:
            self._emit(Cleared(wait=bool(wait)))


WIDGET = "application/vnd.jupyter.widget-view+json"


class OutputCapture:
    """Receives output instead of the client."""

    def shown(self, data: dict[str, Any], metadata: dict[str, Any], result: bool) -> None:
        raise NotImplementedError

    def cleared(self, wait: bool) -> None:
        raise NotImplementedError

    def failed(self, name: str, message: str, traceback: str) -> None:
        raise NotImplementedError


def _kind(bundle: Bundle) -> str:
    if tables.TABLE in bundle:
        return "dataframe"
    if any(mime in bundle for mime in _IMAGE_TYPES):
        return "image"
    if "text/html" in bundle:
        return "html"
    return "execute_result"


def clean_bundle(data: dict[str, Any]) -> Bundle:
    """Convert values: text to str, pictures to bytes, JSON and other objects to JSON text."""
    bundle: Bundle = {}
    for mime, value in data.items():
        mime = str(mime)
        if is_json(mime):
            bundle[mime] = json.dumps(value, default=repr)
        elif isinstance(value, (bytes, bytearray)):
            bundle[mime] = bytes(value)
        elif isinstance(value, str):
            bundle[mime] = (
                _picture(value) if mime in _BINARY_TYPES else _text(_shortened(value) if mime == _PLAIN else value)
            )
        else:
            bundle[mime] = json.dumps(value, default=repr)
    return bundle


def _shortened(text: str) -> str:
    """The beginning and the end of a very long text."""
    if len(text) <= _MAX_TEXT_CHARS:
        return text
    half = _MAX_TEXT_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def is_json(mime: str) -> bool:
    return mime == "application/json" or mime.endswith("+json")


def _picture(data: str) -> str | bytes:
    try:
        return base64.b64decode(data, validate=False)
    except binascii.Error:
        return _text(data)


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
