"""What a notebook set about its pictures and numbers: read when they are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_NAMES = {
    "png": "png",
    "png2x": "retina",
    "retina": "retina",
    "jpg": "jpeg",
    "jpeg": "jpeg",
    "svg": "svg",
    "pdf": "pdf",
}


@dataclass
class Inline:
    """How figures are drawn: in which formats ("png", "retina", "jpeg", "svg", "pdf"), with which savefig options."""

    formats: tuple[str, ...] = ("png",)
    print_options: dict[str, Any] = field(default_factory=lambda: {"bbox_inches": "tight"})
    close_figures: bool = True

    def choose(self, *formats: str, **options: Any) -> None:
        """Use these formats from now on, and savefig with these options besides."""
        unknown = [each for each in formats if each not in _NAMES]
        if unknown:
            known = ", ".join(sorted(_NAMES))
            raise ValueError(f"There is no figure format {unknown[0]!r}; there are {known}.")
        self.formats = tuple(_NAMES[each] for each in formats) or ("png",)
        self.print_options = {**self.print_options, **options}


inline = Inline()
