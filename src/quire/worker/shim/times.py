"""Spans of time as one says them."""

from __future__ import annotations

import math

_UNITS = ("s", "ms", "μs", "ns")


def spoken(seconds: float, digits: int = 3) -> str:
    """A minute and more by its parts, less in the unit that suits."""
    if seconds >= 60:
        return _parts(seconds)
    order = min(-int(math.floor(math.log10(seconds)) // 3), 3) if seconds > 0 else 3
    return f"{seconds * 1000**order:.{digits}g} {_UNITS[order]}"


def _parts(seconds: float) -> str:
    said = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        whole = int(seconds // length)
        if whole > 0:
            seconds %= length
            said.append(f"{whole}{unit}")
        if seconds < 1:
            break
    return " ".join(said)
