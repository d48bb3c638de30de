"""The port Disk: the space that the data directory takes, and whether it can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PARTS = {"database": "quire.db*", "blobs": "blobs/**/*", "snapshots": "snapshots/**/*", "audit": "audit*.jsonl"}
_TRIAL_BYTES = 64 << 10  # a disk that does not take these is full


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def used_bytes(self) -> dict[str, int]:
        return {part: sum(map(_size, self._path.glob(pattern))) for part, pattern in _PARTS.items()}

    def free_bytes(self) -> int:
        return shutil.disk_usage(self._path).free

    def write_error(self) -> str:
        try:
            with tempfile.TemporaryFile(dir=self._path) as file:  # deleted when it is closed
                file.write(bytes(_TRIAL_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"The data directory cannot be written to: {error.strerror}."
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # deleted meanwhile
        return 0
