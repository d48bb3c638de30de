"""How much a folder takes on disk: counted without following a link, and within bounds, whatever is in it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable

from quire.core.ports.files import Use
from quire.safe_open.folder import Folder, Walker

LEFT = ".quire-new"  # ends the name of a file that is being written
_LEFT_SECONDS = 60.0  # after which such a file is one that a killed server left
_SECONDS = 20.0  # of one count
_BREATH = 500  # names between two rests
_REST = 0.002  # seconds for everybody else
_LINKS = 100_000  # files of several names that are remembered


def measure(walker: Walker, root: str, stopped: Callable[[], bool] = lambda: False) -> Use:
    """What it takes. What a killed server left there is removed on the way. It ends soon after it is `stopped`."""
    try:
        with walker.open_root(root) as top:
            return _Count(top, stopped).run()
    except FileNotFoundError:
        return Use()


class _Count:
    def __init__(self, top: Folder, stopped: Callable[[], bool]) -> None:
        self._top = top
        self._stopped = stopped
        self._todo: deque[tuple[str, ...]] = deque([()])
        self._linked: set[tuple[int, int]] = set()
        self._bytes = self._files = self._seen = 0
        self._deep = False
        self._end = time.monotonic() + _SECONDS

    def run(self) -> Use:
        while self._todo and not self._late():
            steps = self._todo.popleft()
            with contextlib.ExitStack() as held:
                try:
                    folder = held.enter_context(self._top.open_folder(steps))
                except OSError as error:
                    self._missed(error)
                    continue
                self._look_into(folder, steps)
        return Use(bytes=self._bytes, files=self._files, whole=not self._todo and not self._late(), deep=self._deep)

    def _look_into(self, folder: Folder, steps: tuple[str, ...]) -> None:
        with folder.scan() as found:
            for entry in found:
                try:
                    self._add(folder, steps, entry.name, entry.stat(follow_symlinks=False))
                except OSError as error:
                    self._missed(error)
                self._seen += 1
                if self._seen % _BREATH == 0:
                    time.sleep(_REST)
                    if self._late():
                        return

    def _add(self, folder: Folder, steps: tuple[str, ...], name: str, there: os.stat_result) -> None:
        if stat.S_ISDIR(there.st_mode):
            self._todo.append((*steps, name))
        elif there.st_nlink > 1:
            key = (there.st_dev, there.st_ino)
            if key in self._linked:
                return
            if len(self._linked) < _LINKS:
                self._linked.add(key)
        elif name.startswith(".") and name.endswith(LEFT) and time.time() - there.st_mtime > _LEFT_SECONDS:
            folder.remove(name)
            return
        self._files += 1
        self._bytes += there.st_blocks * 512 if hasattr(there, "st_blocks") else there.st_size  # on Windows

    def _missed(self, error: OSError) -> None:
        """Moved or taken away meanwhile, unless no path leads there any more."""
        self._deep = self._deep or error.errno == errno.ENAMETOOLONG

    def _late(self) -> bool:
        return self._stopped() or time.monotonic() > self._end
