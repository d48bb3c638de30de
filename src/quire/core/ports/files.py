"""What the core needs of the folders that code works in. What lies there may be hostile: the code put it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name in a folder."""

    name: str  # bytes that are not UTF-8 are lone surrogates in it, as os.fsdecode has them
    kind: str  # file, folder, link, or other: a pipe, a socket, a device
    size: int  # bytes, of a file
    modified: float  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a folder holds, by name, as far as it was looked at."""

    entries: tuple[Entry, ...]
    more: int = 0  # names that are left out
    whole: bool = True  # all were counted


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Bytes of a file, from `start` on."""

    data: bytes
    start: int
    total: int  # bytes the file has
    head: bytes = b""  # how the file begins, where the piece does not


@dataclass(frozen=True, kw_only=True)
class Use:
    """What a folder takes on disk."""

    bytes: int = 0
    files: int = 0  # folders and links among them
    whole: bool = True  # all of it was counted; else it is at least so much
    deep: bool = False  # it has folders nested deeper than any path can say


class Folders(Protocol):
    """Files below a folder, `root`, by the names that lead there. Nothing outside it is ever reached: no link is
    followed, no mount crossed, and only plain files with one name are opened. Whoever changes things there meanwhile
    changes nothing about that.

    Raises NotFound, Refused where it is not such a file, or Failed where the disk is full.
    """

    async def list(self, root: str, steps: tuple[str, ...], limit: int) -> Listing:
        """The first `limit` names of a folder."""
        ...

    async def read(self, root: str, steps: tuple[str, ...], start: int, limit: int) -> Piece: ...

    async def write(self, root: str, steps: tuple[str, ...], data: bytes, *, append: bool) -> int:
        """Put these bytes into a file, in place of what it holds, or after that; folders on the way are made. All of
        it or nothing, on disk when it returns. The bytes the file has then."""
        ...

    async def seen(self, root: str, limit: int) -> dict[str, tuple[int, int]]:
        """The files below it, `limit` at the most: of each its bytes and when it was last changed, in nanoseconds."""
        ...

    def glance(self, root: str) -> dict[str, tuple[int, int]] | None:
        """The same, looked at in place, which only a disk that is known to answer may be asked for; None where there is
        so much that somebody else would wait for it."""
        ...

    async def remove(self, root: str) -> None:
        """The folder is gone, with all that is in it; nothing outside it is touched."""

    async def measure(self, root: str) -> Use:
        """What it takes on disk, as far as that can be counted in a while."""
        ...


class Disk(Protocol):
    """The disk that state is kept on. Each looks at it: in a thread, and not too often."""

    def taken(self) -> dict[str, int]:
        """Bytes, by what they are taken for."""
        ...

    def free(self) -> int:
        """Bytes that are left."""
        ...

    def trouble(self) -> str:
        """Why nothing can be kept there now, as a sentence; empty where it can."""
        ...
