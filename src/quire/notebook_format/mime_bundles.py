"""Converts MIME bundles between a document and Quire, which has JSON as text, and images and sound as bytes."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from quire.core.model import Data

WIDGETS = "application/vnd.quire.widget-state+json"
"""Widget models by id. Quire stores them with the view, a document in its metadata."""

_INVALID_BASE64 = "application/vnd.quire.verbatim+json"  # {mime: text} of binary types whose text is not base64
_DEFAULT_LINE_LENGTH = 76  # characters in a line of base64, unless the layout has a number; R writes 72


def is_json(mime: str) -> bool:
    return mime == "application/json" or (mime.startswith("application/") and mime.endswith("+json"))


def is_private(mime: str) -> bool:
    """Whether it is a type of Quire that documents do not have."""
    return "/vnd.quire." in mime


def from_document(data: dict[str, Any]) -> tuple[dict[str, Data], dict[str, str]]:
    """Quire's bundle, and the line layout of each base64 text that has more than one line."""
    bundle: dict[str, Data] = {}
    layouts: dict[str, str] = {}
    invalid: dict[str, str] = {}
    for mime, value in data.items():
        if is_private(mime):
            continue
        if is_json(mime):
            bundle[mime] = json.dumps(value, ensure_ascii=False)
        elif not is_binary(mime):
            bundle[mime] = as_text(value)
        elif (found := _decode_base64(as_text(value))) is None:
            invalid[mime] = as_text(value)
        else:
            bundle[mime], layout = found
            if layout:
                layouts[mime] = layout
    if invalid:
        bundle[_INVALID_BASE64] = json.dumps(invalid)
    return bundle, layouts


def to_document(bundle: dict[str, Data], layouts: Any = None) -> dict[str, Any]:
    """The bundle of a document."""
    data: dict[str, Any] = {}
    if _INVALID_BASE64 in bundle:
        data.update(json.loads(text_of(bundle[_INVALID_BASE64])))
    for mime, value in bundle.items():
        if is_private(mime):
            continue
        if isinstance(value, bytes):
            data[mime] = _encode_base64(value, layouts.get(mime, "") if isinstance(layouts, dict) else "")
        else:
            data[mime] = parse_json(text_of(value)) if is_json(mime) else text_of(value)
    return data


def is_binary(mime: str) -> bool:
    kind = mime.partition("/")[0]
    return mime == "application/pdf" or (kind in ("image", "audio", "video") and not mime.endswith(("+xml", "+json")))


def as_text(value: Any) -> str:
    """Joins lines. Other values become JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return json.dumps(value, ensure_ascii=False)


def text_of(data: Data) -> str:
    if not isinstance(data, str):
        raise TypeError("an output's data must be loaded before it is written")
    return data


def parse_json(text: str) -> Any:
    """The parsed JSON; the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _decode_base64(text: str) -> tuple[bytes, str] | None:
    """The bytes and the layout that encode to exactly this text; None if it is not base64."""
    if not text:
        return None
    try:
        data = binascii.a2b_base64(text)
    except (binascii.Error, ValueError):
        return None
    body = text.removesuffix("\n")
    width = body.find("\n")
    lines = [] if width < 0 else ["lines" if width == _DEFAULT_LINE_LENGTH else f"lines of {width}"]
    layout = ", ".join(lines + ["end"] * (body != text))
    return (data, layout) if _encode_base64(data, layout) == text else None


def _encode_base64(data: bytes, layout: str) -> str:
    """Base64 text with the line breaks of the layout."""
    text = base64.b64encode(data).decode("ascii")
    if "lines" in layout:
        found = re.search(r"lines of (\d+)", layout)
        width = max(1, int(found[1])) if found else _DEFAULT_LINE_LENGTH
        text = "\n".join(text[start : start + width] for start in range(0, len(text), width))
    return text + "\n" if "end" in layout else text
