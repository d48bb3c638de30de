"""The log of relayed calls: a line of JSON each, appended; what is written survives the end of this process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

from quire.core.capability import CallRecord

log = logging.getLogger(__name__)
_FULL = 64 << 20  # bytes of one file; the one before is kept beside it


class FileAudit:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._written = 0
        self._inode = 0

    def record(self, call: CallRecord) -> None:
        line = json.dumps(asdict(call), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            if self._file < 0 or self._written + len(line) > _FULL or not self._is_here():
                self._open()
            os.write(self._file, line)  # one write to an appended file: lines of several servers do not mix
            self._written += len(line)
        except OSError as error:
            log.warning("a relayed call could not be written to the audit log: %s", error)

    def _is_here(self) -> bool:
        """Another server may have put the file aside."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self.close()
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_size >= _FULL // 2:
                self._path.replace(self._path.with_suffix(".old.jsonl"))
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        status = os.fstat(self._file)
        self._written, self._inode = status.st_size, status.st_ino


class MemoryAudit:
    def __init__(self) -> None:
        self.calls: list[CallRecord] = []

    def record(self, call: CallRecord) -> None:
        self.calls.append(call)
        del self.calls[:-10_000]
