"""How much space a folder takes. Links are not followed, and time and memory are limited."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable

from quire.core.ports.files import FolderUsage
from quire.safe_open.folder import Folder, Walker

UNFINISHED_SUFFIX = ".quire-new"  # of the name of a file that is being written
_MAX_UNFINISHED_AGE_S = 60.0  # an older one was left by a killed server
_MAX_COUNT_S = 20.0
_NAMES_PER_PAUSE = 500
_PAUSE_S = 0.002  # for other threads
_MAX_LINKED_FILES = 100_000  # files with several names, which are counted once


def measure_folder(walker: Walker, root: str, is_stopped: Callable[[], bool] = lambda: False) -> FolderUsage:
    """Measure a folder, and delete unfinished files that a killed server left in it. Ends soon if `is_stopped()`."""
    try:
        with walker.open_root(root) as root_folder:
            return _Counter(root_folder, is_stopped).run()
    except FileNotFoundError:
        return FolderUsage()


class _Counter:
    def __init__(self, root_folder: Folder, is_stopped: Callable[[], bool]) -> None:
        self._root_folder = root_folder
        self._is_stopped = is_stopped
        self._waiting: deque[tuple[str, ...]] = deque([()])
        self._linked: set[tuple[int, int]] = set()
        self._bytes = self._files = self._entries = 0
        self._is_too_deep = False
        self._end = time.monotonic() + _MAX_COUNT_S

    def run(self) -> FolderUsage:
        while self._waiting and not self._is_over():
            steps = self._waiting.popleft()
            with contextlib.ExitStack() as stack:
                try:
                    folder = stack.enter_context(self._root_folder.open_folder(steps))
                except OSError as error:
                    self._note_error(error)
                    continue
                self._count_folder(folder, steps)
        return FolderUsage(
            bytes=self._bytes,
            files=self._files,
            whole=not self._waiting and not self._is_over(),
            deep=self._is_too_deep,
        )

    def _count_folder(self, folder: Folder, steps: tuple[str, ...]) -> None:
        with folder.scan() as entries:
            for entry in entries:
                try:
                    self._count_entry(folder, steps, entry.name, entry.stat(follow_symlinks=False))
                except OSError as error:
                    self._note_error(error)
                self._entries += 1
                if self._entries % _NAMES_PER_PAUSE == 0:
                    time.sleep(_PAUSE_S)
                    if self._is_over():
                        return

    def _count_entry(self, folder: Folder, steps: tuple[str, ...], name: str, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            self._waiting.append((*steps, name))
        elif status.st_nlink > 1:
            key = (status.st_dev, status.st_ino)
            if key in self._linked:
                return
            if len(self._linked) < _MAX_LINKED_FILES:
                self._linked.add(key)
        elif _is_abandoned(name, status):
            folder.remove(name)
            return
        self._files += 1
        self._bytes += status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size  # on Windows

    def _note_error(self, error: OSError) -> None:
        """A path was too long. Other errors mean that an entry was moved or deleted meanwhile."""
        self._is_too_deep = self._is_too_deep or error.errno == errno.ENAMETOOLONG

    def _is_over(self) -> bool:
        return self._is_stopped() or time.monotonic() > self._end


def _is_abandoned(name: str, status: os.stat_result) -> bool:
    is_unfinished = name.startswith(".") and name.endswith(UNFINISHED_SUFFIX)
    return is_unfinished and time.time() - status.st_mtime > _MAX_UNFINISHED_AGE_S
