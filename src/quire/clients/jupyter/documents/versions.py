"""How often each cell's source was changed, by anybody."""

from __future__ import annotations

from collections.abc import Mapping


class SourceVersions:
    """Begin at 1. A cell that is gone keeps its version, should it come back."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    def record(self, cell: str, source: str) -> None:
        if self._sources.get(cell) != source:
            self._sources[cell] = source
            self._versions[cell] = self._versions.get(cell, 0) + 1

    def record_all(self, sources: Mapping[str, str]) -> None:
        for cell, source in sources.items():
            self.record(cell, source)

    def get(self, cell: str) -> int:
        return self._versions.get(cell, 1)
