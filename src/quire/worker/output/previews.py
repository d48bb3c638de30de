"""A smaller copy of a picture too large to show a model, or one of what a model cannot see at all.

Made here, so that no server decodes a cell's bytes.
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
_BYTES = 300_000
_SIDE = 1_568  # pixels; models look at no more


def with_preview(bundle: Bundle, value: Any = None) -> Bundle:
    """The bundle, with a preview where its picture is large, or where it is of a kind that only browsers draw."""
    for mime in ("image/png", "image/jpeg", "image/gif"):
        data = bundle.get(mime)
        if isinstance(data, bytes):
            if len(data) > _BYTES or _longest_side(data) > _SIDE:
                small = _shrunk(data)
                return {**bundle, PREVIEW: small} if small is not None else bundle
            return bundle
    drawn = _drawn(bundle, value)
    return {**bundle, PREVIEW: drawn} if drawn is not None else bundle


def _drawn(bundle: Bundle, value: Any) -> bytes | None:
    """A figure as a picture, where what its library needs to draw one is there."""
    try:
        if type(value).__module__ == "matplotlib.figure":
            picture = io.BytesIO()
            value.savefig(picture, format="png", bbox_inches="tight", dpi=72)
            return _small(picture.getvalue())
        plotly = bundle.get("application/vnd.plotly.v1+json")
        if isinstance(plotly, str) and importlib.util.find_spec("kaleido") is not None:
            return _small(sys.modules["plotly.io"].to_image(json.loads(plotly), format="png", validate=False))
        if type(value).__module__.startswith("altair.") and importlib.util.find_spec("vl_convert") is not None:
            import vl_convert

            return _small(bytes(vl_convert.vegalite_to_png(value.to_dict())))
    except Exception:  # it is shown by its other forms
        return None
    return None


def _small(data: bytes) -> bytes | None:
    return data if len(data) <= _BYTES and _longest_side(data) <= _SIDE else _shrunk(data)


def _longest_side(data: bytes) -> int:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return 0
    sides: tuple[int, int] = struct.unpack("!II", data[16:24])
    return max(sides)


def _shrunk(data: bytes) -> bytes | None:
    try:
        from PIL import Image

        picture: Any = Image.open(io.BytesIO(data))
        for side in (_SIDE, _SIDE // 2, _SIDE // 4, _SIDE // 8):  # of a photograph fewer pixels still
            picture.thumbnail((side, side))
            small = io.BytesIO()
            picture.save(small, "PNG", optimize=True)
            if small.tell() <= _BYTES:
                break
        return small.getvalue()
    except Exception:  # no Pillow, or not a picture it can read: shown by reference only
        return None
