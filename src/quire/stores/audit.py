"""The audit log in files: one line of JSON for each call, appended by one write. A full file is rotated.

Several servers may write to one log. A full file is renamed under a lock, and the other servers notice that with their
next line. So each line is in exactly one file, even if a server is killed meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from quire import platform_compat
from quire.core.ops import audit
from quire.core.ops.audit import Record

log = logging.getLogger(__name__)
_FILE_TIME_LAG_S = 2.0  # of a file's modification time
_POLL_INTERVAL_S = 0.2


class FileAudit:
    def __init__(self, path: Path, *, max_bytes: int = 64 << 20, max_files: int = 10) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file = -1
        self._inode = 0
        self._is_line_cut_off = False
        self.trouble = ""
        self.lost = 0

    def record(self, record: Record) -> None:
        line = audit.format_line(record)
        try:
            self._open_current(len(line))
            data = b"\n" * self._is_line_cut_off + line
            # one write in append mode does not mix with those of other servers, except on Windows
            with _locked(self._path) if sys.platform == "win32" else contextlib.nullcontext():
                written = os.write(self._file, data)
            self._is_line_cut_off = written < len(data)  # the disk is full
            if self._is_line_cut_off:
                raise OSError(0, "No space left on device")
        except OSError as error:
            self._note_loss(error.strerror or str(error))
        else:
            if self.trouble:
                log.warning("the audit log can be written again; %d calls in all are not in it", self.lost)
            self.trouble = ""

    def _note_loss(self, why: str) -> None:
        self.lost += 1
        if why != self.trouble:  # once, not for each call
            log.error("a call could not be written to the audit log %s: %s", self._path, why)
        self.trouble = why

    def _open_current(self, length: int) -> None:
        """Open the current file, or a new one if `length` bytes do not fit."""
        if self._file < 0 or not self._is_current():
            self._open()
        if os.lseek(self._file, 0, os.SEEK_END) + length > self._max_bytes:
            self._rotate(length)
            self._open()

    def _is_current(self) -> bool:
        """False if another server rotated the file."""
        try:
            return os.stat(self._path).st_ino == self._inode  # noqa: PTH116 - faster than Path.stat
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        self.close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | platform_compat.BYTES, 0o600)
        self._inode = os.fstat(self._file).st_ino

    def _rotate(self, length: int) -> None:
        """Rename the full file unless another server just did, and delete the oldest files."""
        with _locked(self._path):
            with contextlib.suppress(FileNotFoundError):
                if 0 < self._path.stat().st_size > self._max_bytes - length:
                    self.close()
                    with contextlib.suppress(*platform_compat.IN_USE):  # another server has it open: it grows
                        self._path.rename(_rotated_name(self._path))
            kept = _rotated_files(self._path)
            for old in kept[: max(0, len(kept) - self._max_files + 1)]:
                with contextlib.suppress(*platform_compat.IN_USE):
                    old.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | platform_compat.BYTES, 0o600)
    try:
        platform_compat.lock(lock)
        yield
    finally:
        os.close(lock)


def _rotated_name(path: Path) -> Path:
    """Return a free name for the full file. It has the time, so that names sort by age."""
    while (name := path.with_name(f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{path.suffix}")).exists():
        pass
    return name


def _rotated_files(path: Path) -> list[Path]:
    """Return the full files, oldest first."""
    return sorted(path.parent.glob(f"{path.stem}-*{path.suffix}"))


class AuditFileReader:
    """The port AuditFiles. The end is the size of each file by inode, because names change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def end(self) -> dict[int, int]:
        while True:
            files = self._all_files()
            found = {status.st_ino: status.st_size for file in files if (status := _status(file)) is not None}
            if files == self._all_files():  # else one was rotated meanwhile and may be missing
                return found

    def newest(self, end: Mapping[int, int], since: float) -> Iterator[dict[str, Any]]:
        for inode in reversed(list(end)):
            lines = self._read_lines(inode, end[inode], since)
            yield from filter(None, map(audit.parse_line, reversed(lines)))

    def _read_lines(self, inode: int, size: int, since: float) -> list[bytes]:
        """Read the first `size` bytes of a file. Returns no lines if it is gone or older than `since`."""
        for file in chain(reversed(self._all_files()), self._rotated_since()):
            try:
                with file.open("rb") as opened:
                    status = os.fstat(opened.fileno())
                    if status.st_ino == inode:
                        return opened.read(size).splitlines() if status.st_mtime >= since - _FILE_TIME_LAG_S else []
            except FileNotFoundError:
                continue
        return []

    def _rotated_since(self) -> Iterator[Path]:
        """Yield the full files that there are when the first one is asked for: one may have been rotated until then."""
        yield from reversed(_rotated_files(self._path))

    def follow(self, end: Mapping[int, int]) -> Iterator[dict[str, Any] | None]:
        read = dict(end)
        while True:
            for file in self._all_files():
                try:
                    opened = file.open("rb")
                except FileNotFoundError:
                    continue
                with opened:
                    inode = os.fstat(opened.fileno()).st_ino
                    opened.seek(read.get(inode, 0))
                    rest = opened.read()
                lines = rest[: rest.rfind(b"\n") + 1]  # the last line may be incomplete
                read[inode] = read.get(inode, 0) + len(lines)
                yield from filter(None, map(audit.parse_line, lines.splitlines()))
            yield None
            time.sleep(_POLL_INTERVAL_S)

    def _all_files(self) -> list[Path]:
        return [*_rotated_files(self._path), self._path]


def _status(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:  # rotated or deleted meanwhile
        return None


class MemoryAudit:
    trouble = ""
    lost = 0

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)
        del self.records[:-10_000]
