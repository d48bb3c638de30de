"""The walls around kernels, in words."""

from __future__ import annotations

from collections.abc import Sequence

from quire.core.model import Layer


def sentence(layers: Sequence[Layer]) -> str:
    """Which stand, and why others do not; those that are off for one reason together."""
    standing = ", ".join(layer.name for layer in layers if not layer.why_not)
    missing: dict[str, list[str]] = {}
    for layer in layers:
        if layer.why_not:
            missing.setdefault(layer.why_not, []).append(layer.name)
    if not standing:
        return "none: cells run with the rights of the server's user" + (f" ({', '.join(missing)})" if missing else "")
    off = "; ".join(f"{', '.join(names)} ({why})" for why, names in missing.items())
    return f"{standing}; off: {off}" if off else standing
