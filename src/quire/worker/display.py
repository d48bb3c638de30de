"""Objects to MIME bundles: what a value shows as, asked of the value itself."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from quire.wire.messages import Bundle, Displayed
from quire.worker.previews import with_preview

_REPRS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)
_IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
_FRAMES = ("pandas", "polars", "pyarrow")


def displayed(value: Any, *, result: bool) -> Displayed:
    """The event that shows `value`; an error its own `__repr__` raises is the user's to see."""
    bundle, metadata = bundle_of(value)
    return Displayed(kind=_kind(value, bundle), bundle=with_preview(bundle), metadata=metadata, result=result)


def shown(bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> Displayed:
    """The event that shows a bundle as it was given."""
    clean = _clean(bundle)
    return Displayed(kind=_kind(None, clean), bundle=with_preview(clean), metadata=dict(metadata or {}))


def bundle_of(value: Any) -> tuple[Bundle, dict[str, Any]]:
    bundle: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    kind = type(value)
    for method, mime in _REPRS:
        data = _ask(value, kind, method)
        if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], dict):
            data, metadata[mime] = data
        if data is not None:
            bundle[mime] = data
    whole = _ask(value, kind, "_repr_mimebundle_")
    if isinstance(whole, tuple) and len(whole) == 2:
        whole, more = whole
        metadata.update(more or {})
    if isinstance(whole, dict):
        bundle.update(whole)
    if "text/plain" not in bundle:
        bundle["text/plain"] = repr(value)
    return _clean(bundle), metadata


def _ask(value: Any, kind: type, method: str) -> Any:
    # looked up on the type: an object that answers every attribute (a mock, a proxy) is not asked
    if not hasattr(kind, method) or isinstance(value, type):
        return None
    try:
        return getattr(value, method)()
    except Exception:  # a broken rich form must not cost the plain one
        return None


def _kind(value: Any, bundle: Bundle) -> str:
    if type(value).__module__.split(".")[0] in _FRAMES and type(value).__name__ in ("DataFrame", "Table"):
        return "dataframe"
    if any(mime in bundle for mime in _IMAGES):
        return "image"
    if "text/html" in bundle:
        return "html"
    return "execute_result"


def _clean(bundle: dict[str, Any]) -> Bundle:
    """Text as text, pictures as bytes; JSON and other objects as their JSON text."""
    clean: Bundle = {}
    for mime, data in bundle.items():
        if mime in ("image/png", "image/jpeg") and isinstance(data, str):
            try:
                data = base64.b64decode(data, validate=False)
            except binascii.Error:
                continue
        if isinstance(data, (bytes, bytearray)):
            clean[str(mime)] = bytes(data)
        elif isinstance(data, str):
            clean[str(mime)] = data.encode("utf-8", "backslashreplace").decode("utf-8")
        else:
            clean[str(mime)] = json.dumps(data, default=repr)
    return clean
