"""What a walker and an open folder can do, on every system."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Folder(Protocol):
    """An open folder. `steps` are the names on the way down from it.

    Methods raise OSError: ELOOP where a link is on the way, EXDEV where a mount is and mounts are not crossed.
    """

    @property
    def path(self) -> Path:
        """A path for system calls. It leads to this folder, also after an exchange for a link, while it is open."""
        ...

    def open_folder(self, steps: tuple[str, ...], *, listed: bool = True) -> contextlib.AbstractContextManager[Folder]:
        """Open a folder below it. With `listed=False` its names cannot be read, and no right to read is needed."""
        ...

    def open_file(self, steps: tuple[str, ...], flags: int) -> contextlib.AbstractContextManager[int]:
        """Open a file that exists and return its descriptor. `flags` are those of `os.open`."""
        ...

    def status(self, steps: tuple[str, ...]) -> os.stat_result | None:
        """Return the status of a path below it without opening it, None if nothing is there. Links are not followed."""
        ...

    def scan(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Iterate over its names, as `os.scandir` does."""
        ...

    def stat(self, name: str) -> os.stat_result:
        """Return the status of one of its names, or of itself for `.`. Links are not followed."""
        ...

    def make_folder(self, name: str) -> None:
        """Make a folder in it with the same owner."""
        ...

    def create(self, name: str) -> int:
        """Create a file, open it for writing and return its descriptor. Raises FileExistsError."""
        ...

    def rename(self, name: str, to: str) -> None: ...

    def remove(self, name: str) -> None:
        """Delete a file or a link."""
        ...

    def remove_folder(self, name: str) -> None:
        """Delete an empty folder."""
        ...

    def sync(self) -> None:
        """Write its names to the disk."""
        ...


class Walker(Protocol):
    def open_root(self, path: str, *, listed: bool = False) -> contextlib.AbstractContextManager[Folder]:
        """Open a folder by its whole path. Links on the way are followed, but it must not be a link itself."""
        ...


@contextmanager
def open_or_make(top: Folder, steps: tuple[str, ...]) -> Iterator[Folder]:
    """Open a folder below `top`, and make the folders on the way that do not exist."""
    with contextlib.ExitStack() as opened:
        here = top
        for step in steps:
            with opened.pop_all():  # close the folder above when the next one is open
                try:
                    below = opened.enter_context(here.open_folder((step,), listed=False))
                except FileNotFoundError:
                    with contextlib.suppress(FileExistsError):
                        here.make_folder(step)
                    below = opened.enter_context(here.open_folder((step,), listed=False))
            here = below
        yield here
