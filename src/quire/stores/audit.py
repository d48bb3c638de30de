"""The audit log in files: a line of JSON for each call, appended by one write; a full file is put beside.

Several servers may write one log. The full file is renamed, under a lock; who still has it open finds out with the
next line. So a line is in one file or another, whichever moment a server is killed at.
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
_COARSE = 2.0  # seconds a file's own time may lag behind that of what was written
_NAP = 0.2  # seconds between two looks for new lines


class FileAudit:
    def __init__(self, path: Path, *, most_bytes: int = 64 << 20, files: int = 10) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._files = files
        self._file = -1
        self._inode = 0
        self._torn = False
        self.trouble = ""
        self.lost = 0

    def record(self, record: Record) -> None:
        line = audit.format_line(record)
        try:
            self._have_room(len(line))
            whole = b"\n" * self._torn + line
            # one write to an appended file: lines of several servers do not mix, but on Windows, where it is two steps
            with _locked(self._path) if sys.platform == "win32" else contextlib.nullcontext():
                written = os.write(self._file, whole)
            self._torn = written < len(whole)  # a full disk may take a part
            if self._torn:
                raise OSError(0, "No space left on device")
        except OSError as error:
            self._lose(error.strerror or str(error))
        else:
            if self.trouble:
                log.warning("the audit log can be written again; %d calls in all are not in it", self.lost)
            self.trouble = ""

    def _lose(self, why: str) -> None:
        self.lost += 1
        if why != self.trouble:  # once, not with every call
            log.error("a call could not be written to the audit log %s: %s", self._path, why)
        self.trouble = why

    def _have_room(self, length: int) -> None:
        """Have the file open that is the log now, and not full."""
        if self._file < 0 or not self._is_here():
            self._open()
        if os.lseek(self._file, 0, os.SEEK_END) + length > self._most_bytes:
            self._put_beside(length)
            self._open()

    def _is_here(self) -> bool:
        """Another server may have put the file beside."""
        try:
            return os.stat(self._path).st_ino == self._inode  # noqa: PTH116 - a third of Path.stat, on every call
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        self.close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | platform_compat.BYTES, 0o600)
        self._inode = os.fstat(self._file).st_ino

    def _put_beside(self, length: int) -> None:
        """Rename the full file, unless another server just has; let the oldest go."""
        with _locked(self._path):
            with contextlib.suppress(FileNotFoundError):
                if 0 < self._path.stat().st_size > self._most_bytes - length:
                    self.close()
                    with contextlib.suppress(*platform_compat.IN_USE):  # by another server: the file grows on
                        self._path.rename(_beside(self._path))
            kept = _rotated(self._path)
            for old in kept[: max(0, len(kept) - self._files + 1)]:
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


def _beside(path: Path) -> Path:
    """A name for the full file: when it was, so that names sort as files do."""
    while (name := path.with_name(f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{path.suffix}")).exists():
        pass
    return name


def _rotated(path: Path) -> list[Path]:
    """Full files, the oldest first."""
    return sorted(path.parent.glob(f"{path.stem}-*{path.suffix}"))


class ReadFiles:
    """The core's `AuditFiles`. The end is the size of each file by inode, since names change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def end(self) -> dict[int, int]:
        while True:
            files = self._files()
            found = {status.st_ino: status.st_size for file in files if (status := _status(file)) is not None}
            if files == self._files():  # else one was put beside meanwhile, and may be missing
                return found

    def newest(self, end: Mapping[int, int], since: float) -> Iterator[dict[str, Any]]:
        for inode in reversed(list(end)):
            lines = self._lines(inode, end[inode], since)
            yield from filter(None, map(audit.parse_line, reversed(lines)))

    def _lines(self, inode: int, size: int, since: float) -> list[bytes]:
        """Of the file, whatever it is called now; none where it is gone, or older than this."""
        for file in chain(reversed(self._files()), self._late()):
            try:
                with file.open("rb") as opened:
                    status = os.fstat(opened.fileno())
                    if status.st_ino == inode:
                        return opened.read(size).splitlines() if status.st_mtime >= since - _COARSE else []
            except FileNotFoundError:
                continue
        return []

    def _late(self) -> Iterator[Path]:
        """Full files as they are by then: one may have been put beside while the others were looked at."""
        yield from reversed(_rotated(self._path))

    def follow(self, end: Mapping[int, int]) -> Iterator[dict[str, Any] | None]:
        read = dict(end)
        while True:
            for file in self._files():
                try:
                    opened = file.open("rb")
                except FileNotFoundError:
                    continue
                with opened:
                    inode = os.fstat(opened.fileno()).st_ino
                    opened.seek(read.get(inode, 0))
                    rest = opened.read()
                whole = rest[: rest.rfind(b"\n") + 1]  # the end of a line may not be there yet
                read[inode] = read.get(inode, 0) + len(whole)
                yield from filter(None, map(audit.parse_line, whole.splitlines()))
            yield None
            time.sleep(_NAP)

    def _files(self) -> list[Path]:
        return [*_rotated(self._path), self._path]


def _status(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:  # put beside, or gone, meanwhile
        return None


class MemoryAudit:
    trouble = ""
    lost = 0

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)
        del self.records[:-10_000]
