"""Previews of pictures that are too large for a model, or in a format that models cannot see.

Made in the worker, so that the server does not decode a cell's bytes.
"""

from __future__ import annotations

import importlib.util
import io
import json
import struct
import sys
from typing import Any

from quire.wire.messages import Bundle

PREVIEW = "image/vnd.quire.preview+png"
_MAX_BYTES = 300_000
_MAX_SIDE_PX = 1_568  # models use no more


def with_preview(bundle: Bundle, value: Any = None) -> Bundle:
    """Add a preview if the picture is large, or of a kind that only browsers draw."""
    for mime in ("image/png", "image/jpeg", "image/gif"):
        data = bundle.get(mime)
        if isinstance(data, bytes):
            if len(data) > _MAX_BYTES or _longest_side(data) > _MAX_SIDE_PX:
                preview = _shrink(data)
                return {**bundle, PREVIEW: preview} if preview is not None else bundle
            return bundle
    rendered = _render(bundle, value)
    return {**bundle, PREVIEW: rendered} if rendered is not None else bundle


def _render(bundle: Bundle, value: Any) -> bytes | None:
    """Render a figure as a picture, if its library can."""
    try:
        if type(value).__module__ == "matplotlib.figure":
            picture = io.BytesIO()
            value.savefig(picture, format="png", bbox_inches="tight", dpi=72)
            return _within_limits(picture.getvalue())
        plotly = bundle.get("application/vnd.plotly.v1+json")
        if isinstance(plotly, str) and importlib.util.find_spec("kaleido") is not None:
            return _within_limits(sys.modules["plotly.io"].to_image(json.loads(plotly), format="png", validate=False))
        if type(value).__module__.startswith("altair.") and importlib.util.find_spec("vl_convert") is not None:
            import vl_convert

            return _within_limits(bytes(vl_convert.vegalite_to_png(value.to_dict())))
    except Exception:  # its other formats are shown
        return None
    return None


def _within_limits(data: bytes) -> bytes | None:
    return data if len(data) <= _MAX_BYTES and _longest_side(data) <= _MAX_SIDE_PX else _shrink(data)


def _longest_side(data: bytes) -> int:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return 0
    sides: tuple[int, int] = struct.unpack("!II", data[16:24])
    return max(sides)


def _shrink(data: bytes) -> bytes | None:
    try:
        from PIL import Image

        picture: Any = Image.open(io.BytesIO(data))
        for side in (_MAX_SIDE_PX, _MAX_SIDE_PX // 2, _MAX_SIDE_PX // 4, _MAX_SIDE_PX // 8):
            picture.thumbnail((side, side))
            preview = io.BytesIO()
            picture.save(preview, "PNG", optimize=True)
            if preview.tell() <= _MAX_BYTES:
                break
        return preview.getvalue()
    except Exception:  # no Pillow, or no picture it can read: no preview
        return None
