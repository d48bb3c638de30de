"""Counts the changes of each cell's source."""

from __future__ import annotations

from collections.abc import Mapping


class SourceVersions:
    """Versions start at 1. A deleted cell keeps its version in case it comes back."""

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
