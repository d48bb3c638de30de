"""Formulas as pictures, where matplotlib is there to draw them."""

from __future__ import annotations

import base64
import importlib
import io
from typing import Any


def latex_to_png(
    s: str, encode: bool = False, backend: Any = None, wrap: bool = False, color: str = "Black", scale: float = 1.0
) -> bytes | str | None:
    """The formula drawn; None where it cannot be."""
    try:
        mathtext = importlib.import_module("matplotlib.mathtext")
    except ImportError:
        return None
    text = s.replace("$$", "$").replace("\\displaystyle", "")
    picture = io.BytesIO()
    try:
        mathtext.math_to_image(
            f"${text}$" if wrap else text, picture, dpi=120 * scale, format="png", color=color.lower()
        )
    except ValueError:  # more than its small TeX knows
        return None
    data = picture.getvalue()
    return base64.encodebytes(data).decode("ascii") if encode else data
