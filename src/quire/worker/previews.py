"""A smaller copy of a picture too large to show a model, made here so that no server decodes a cell's bytes."""

from __future__ import annotations

import io
import struct
from typing import Any

from quire.wire.messages import Bundle

PREVIEW = "image/vnd.quire.preview+png"
_BYTES = 300_000
_SIDE = 1_568  # pixels; models look at no more


def with_preview(bundle: Bundle) -> Bundle:
    """The bundle, with a preview where its picture is large and Pillow is there to shrink it."""
    for mime in ("image/png", "image/jpeg"):
        data = bundle.get(mime)
        if isinstance(data, bytes) and (len(data) > _BYTES or _longest_side(data) > _SIDE):
            small = _shrunk(data)
            if small is not None:
                return {**bundle, PREVIEW: small}
    return bundle


def _longest_side(data: bytes) -> int:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return 0
    sides: tuple[int, int] = struct.unpack("!II", data[16:24])
    return max(sides)


def _shrunk(data: bytes) -> bytes | None:
    try:
        from PIL import Image

        picture: Any = Image.open(io.BytesIO(data))
        picture.thumbnail((_SIDE, _SIDE))
        small = io.BytesIO()
        picture.save(small, "PNG", optimize=True)
        if small.tell() > _BYTES:  # a photograph: fewer pixels still
            picture.thumbnail((_SIDE // 2, _SIDE // 2))
            small = io.BytesIO()
            picture.save(small, "PNG", optimize=True)
        return small.getvalue()
    except Exception:  # no Pillow, or not a picture it can read: shown by reference only
        return None
