"""The data directory as a place: what takes how much of it, and whether anything more can be kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PARTS = {"database": "quire.db*", "blobs": "blobs/**/*", "snapshots": "snapshots/**/*", "audit": "audit*.jsonl"}
_TRIAL = 64 << 10  # bytes: a disk that takes no more than this is full


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def taken(self) -> dict[str, int]:
        return {part: sum(map(_size, self._path.glob(pattern))) for part, pattern in _PARTS.items()}

    def free(self) -> int:
        return shutil.disk_usage(self._path).free

    def trouble(self) -> str:
        try:
            with tempfile.TemporaryFile(dir=self._path) as file:  # has no name: nothing of it stays
                file.write(bytes(_TRIAL))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"The data directory cannot be written to: {error.strerror}."
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # gone meanwhile
        return 0
