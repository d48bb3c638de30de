"""The sandbox layers of kernels: their names, which ones a setting requires, and a summary."""

from __future__ import annotations

from collections.abc import Sequence

from quire.core.model import Layer

LAYERS = (
    "cgroup",
    "user",
    "mount",
    "pid",
    "net",
    "ipc",
    "uid",
    "rlimits",
    "capabilities",
    "no_new_privs",
    "landlock",
    "seccomp",
)
"""In the order they are applied."""


def describe_layers(layers: Sequence[Layer]) -> str:
    """The active layers, and the others grouped by why they are off."""
    active = ", ".join(layer.name for layer in layers if not layer.why_not)
    missing: dict[str, list[str]] = {}
    for layer in layers:
        if layer.why_not:
            missing.setdefault(layer.why_not, []).append(layer.name)
    if not active:
        return "none: cells run with the rights of the server's user" + (f" ({', '.join(missing)})" if missing else "")
    off = "; ".join(f"{', '.join(names)} ({why})" for why, names in missing.items())
    return f"{active}; off: {off}" if off else active


def required_layers(wanted: str) -> tuple[str, ...]:
    """The layers that a setting requires. Raises ValueError with the known names."""
    word, _, names = wanted.partition(":")
    if word in ("auto", "off") and not names:
        return ()
    if word != "require" or not names:
        raise ValueError("it is auto, off, or require: and layers, as in require:pid,net,mount or require:all")
    chosen = LAYERS if names == "all" else tuple(name.strip() for name in names.split(","))
    unknown = [name for name in chosen if name not in LAYERS]
    if unknown:
        raise ValueError(f"there is no layer {', '.join(unknown)}; there are {', '.join(LAYERS)}")
    return chosen
