"""A store in a temporary folder, which is deleted when the store closes or, after a kill, by the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from quire import platform_compat
from quire.stores.sql import SqlStore

_PREFIX = "quire-memory-"
_LOCK, _DATA = "lock", "data"  # all names in the folder


class TemporaryFolder:
    """An empty folder that only this user can open. A file lock shows that its process is still running."""

    def __init__(self) -> None:
        """Raises OSError where the system's temporary folder cannot be written."""
        remove_abandoned_folders(Path(tempfile.gettempdir()))
        self._folder, self._lock = _create_locked_folder()
        self.path = self._folder / _DATA
        self.path.mkdir()

    def remove(self) -> None:
        _remove(self._folder, self._lock)


class TemporaryStore(SqlStore):
    """The SQL store in a temporary folder of its own."""

    def __init__(self) -> None:
        self._temporary = TemporaryFolder()
        self.folder = self._temporary.path
        try:
            super().__init__(self.folder)
        except BaseException:
            self._temporary.remove()
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._temporary.remove()


def remove_abandoned_folders(parent: Path) -> None:
    """Delete folders of this user whose processes were killed, so that their locks are free."""
    with contextlib.suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            if _is_ours(folder):
                _remove_if_abandoned(folder)


def _create_locked_folder() -> tuple[Path, int]:
    while True:  # again if another process deleted the new folder before it was locked
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | platform_compat.BYTES, 0o600)
            if platform_compat.try_lock(lock) and (folder / _LOCK).exists():
                return folder, lock
            os.close(lock)


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:  # its process deleted it meanwhile
        return False
    return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())


def _remove_if_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | platform_compat.BYTES)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # its process was killed before it created the lock; fails if the folder is not empty
        return
    if platform_compat.try_lock(lock):
        _remove(folder, lock)
    else:
        os.close(lock)


def _remove(folder: Path, lock: int) -> None:
    """The lock is deleted last, so that the next process deletes the rest if this one is killed."""
    shutil.rmtree(folder / _DATA, ignore_errors=True)
    os.close(lock)  # Windows does not delete an open file
    with contextlib.suppress(OSError):
        (folder / _LOCK).unlink()
        folder.rmdir()
