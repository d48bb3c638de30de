"""Folders in which the code of cells works, and the disk. Files there may be hostile, because code wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name in a folder."""

    name: str  # as of os.fsdecode: bytes that are not UTF-8 are lone surrogates
    kind: str  # file, folder, link, or other: a pipe, a socket, a device
    size: int  # bytes, of a file
    modified: float  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Entries of a folder in the order of their names."""

    entries: tuple[Entry, ...]
    more: int = 0  # entries that are left out
    whole: bool = True  # all entries were counted


@dataclass(frozen=True, kw_only=True)
class FileSlice:
    """Bytes of a file from `start` on."""

    data: bytes
    start: int
    total: int  # bytes of the file
    head: bytes = b""  # first bytes of the file, if the slice begins later


@dataclass(frozen=True, kw_only=True)
class FolderUsage:
    """Space that a folder takes on disk."""

    bytes: int = 0
    files: int = 0  # with folders and links
    whole: bool = True  # False: at least this, because it was not counted to the end
    deep: bool = False  # it has folders nested deeper than the longest path


class Folders(Protocol):
    """Files below a folder, `root`, by the names on the way. Nothing outside it is reached, even if code changes the
    folder meanwhile: links are not followed, mounts are not crossed, and only plain files with one name are opened.

    Methods raise NotFound, InvalidRequest if it is not such a file, or OperationFailed if the disk is full.
    """

    async def list(self, root: str, steps: tuple[str, ...], limit: int) -> Listing:
        """Return the first `limit` entries of a folder."""
        ...

    async def read(self, root: str, steps: tuple[str, ...], start: int, limit: int) -> FileSlice: ...

    async def write(self, root: str, steps: tuple[str, ...], data: bytes, *, append: bool) -> int:
        """Replace the content of a file or append to it, completely or not at all. Missing folders are created.

        Returns the size of the file. It is on disk then.
        """
        ...

    async def stat_files(self, root: str, limit: int) -> dict[str, tuple[int, int]]:
        """Return the size and the modification time in nanoseconds of at most `limit` files below the folder."""
        ...

    def stat_files_inline(self, root: str) -> dict[str, tuple[int, int]] | None:
        """The same for a few files on the caller's thread, which a slow disk would block. None if there are more."""
        ...

    async def remove(self, root: str) -> None:
        """Delete the folder with all that is in it."""

    async def measure(self, root: str) -> FolderUsage:
        """Count what it takes on disk, for a limited time."""
        ...


class Disk(Protocol):
    """The disk that has the data directory. Methods block: call them in a thread, and not often."""

    def used_bytes(self) -> dict[str, int]:
        """Return used bytes by purpose."""
        ...

    def free_bytes(self) -> int:
        """Return free bytes."""
        ...

    def write_error(self) -> str:
        """Return a sentence that says why it cannot be written, "" if it can."""
        ...
