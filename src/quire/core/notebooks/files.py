"""List, read and write files in a notebook's workspace, never outside it."""

from __future__ import annotations

import codecs
from collections.abc import Callable

import anyio

from quire.core.errors import InvalidRequest
from quire.core.limits.workspace_paths import path_parts, quoted
from quire.core.limits.workspace_quota import WorkspaceQuota
from quire.core.model import Notebook
from quire.core.ports.files import FileSlice, Folders, Listing

MAX_LISTED = 200  # names in one answer
_CONTINUATION_BYTES = range(0x80, 0xC0)  # bytes that continue a UTF-8 character


class Files:
    def __init__(
        self, folders: Folders, quota: WorkspaceQuota, workspace: Callable[[Notebook], str], max_bytes: int
    ) -> None:
        self._folders = folders
        self._quota = quota
        self._workspace = workspace
        self.max_bytes = max_bytes  # read or written in one call
        self._writing: dict[str, anyio.Lock] = {}

    async def list(self, notebook: Notebook, path: str = ".") -> Listing:
        root = self._workspace(notebook)
        return await self._folders.list(root, path_parts(root, path), MAX_LISTED)

    async def read(self, notebook: Notebook, path: str, start: int = 0, limit: int | None = None) -> FileSlice:
        """The file's bytes from `start`, all or at most `limit`."""
        if start < 0 or (limit is not None and not 0 < limit <= self.max_bytes):
            raise InvalidRequest(
                f"start must be 0 or more, and limit 1 to {self.max_bytes:,} bytes (setting limits.max_file_bytes)."
            )
        root, steps = self._file_path(notebook, path)
        piece = await self._folders.read(root, steps, start, self.max_bytes if limit is None else limit)
        if start > piece.total:
            raise InvalidRequest(f"{quoted(path)} has {piece.total:,} bytes; there is nothing from {start:,} on.")
        return piece

    async def read_whole(self, notebook: Notebook, path: str) -> bytes:
        piece = await self.read(notebook, path)
        if len(piece.data) < piece.total:
            raise InvalidRequest(
                f"{quoted(path)} has {piece.total:,} bytes, over the limit of {self.max_bytes:,} at once "
                "(setting limits.max_file_bytes). Read it in parts, with start and limit."
            )
        return piece.data

    async def write(self, notebook: Notebook, path: str, data: bytes, *, append: bool = False) -> int:
        """Write all of the data or nothing, and create missing folders. Returns the size of the file."""
        if len(data) > self.max_bytes:
            raise InvalidRequest(
                f"These are {len(data):,} bytes, over the limit of {self.max_bytes:,} at once "
                "(setting limits.max_file_bytes). Nothing was written. "
                "Write the file in parts, all but the first with "
                "append=true."
            )
        root, steps = self._file_path(notebook, path)
        async with self._writing.setdefault(root, anyio.Lock()):
            await self._quota.check_space(notebook, len(data))
            return await self._folders.write(root, steps, data, append=append)

    def relative_path(self, notebook: Notebook, path: str) -> str:
        """The path relative to the workspace, normalized."""
        return "/".join(path_parts(self._workspace(notebook), path)) or "."

    def warning(self, notebook: Notebook) -> str:
        """How full the workspace is, if more than half; else ""."""
        return self._quota.warning(notebook)

    def _file_path(self, notebook: Notebook, path: str) -> tuple[str, tuple[str, ...]]:
        root = self._workspace(notebook)
        steps = path_parts(root, path)
        if not steps:
            raise InvalidRequest(f"{quoted(path)} is the workspace itself; name a file in it.")
        return root, steps


def as_text(piece: FileSlice) -> tuple[str, int] | None:
    """The text of a piece and the offset after its last whole character; None if it is not text."""
    data = piece.data
    begin = 0
    while piece.start and begin < min(3, len(data)) and data[begin] in _CONTINUATION_BYTES:
        begin += 1
    if b"\x00" in data or b"\x00" in piece.head:
        return None
    last = piece.start + len(data) >= piece.total
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data[begin:], final=last)
    except UnicodeDecodeError:
        return None
    left = len(decoder.getstate()[0])
    if left and not text:
        return None  # not one whole character; as bytes the caller can continue
    return text, piece.start + len(data) - left
