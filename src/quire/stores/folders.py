"""The port Folders on disk. Links are not followed, and a file is written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import uuid4

import anyio
import anyio.to_thread

from quire import platform_compat
from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.limits.workspace_paths import quoted
from quire.core.ports.files import Entry, FileSlice, FolderUsage, Listing
from quire.safe_open.by_descriptor import set_owner
from quire.safe_open.by_name import InvalidFileName
from quire.safe_open.folder import Folder, Walker, open_or_make
from quire.safe_open.walkers import new_walker
from quire.stores.folder_usage import UNFINISHED_SUFFIX, measure_folder

T = TypeVar("T")
_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)  # does not wait for a pipe or take a terminal
_TIMEOUT_S = 30.0  # of a disk
_MAX_NAMES = 100_000  # read of a folder
_MAX_INLINE_ENTRIES = 50  # read on the thread of the event loop
_HEAD_BYTES = 1_000  # enough to tell the type of a file
_MAX_THREADS = 8
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFolders:
    def __init__(self, walker: Walker | None = None) -> None:
        self._walker = walker or new_walker()
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)
        self._measuring = anyio.CapacityLimiter(2)  # of its own, so that large folders do not block other calls
        self._appending = threading.Lock()

    async def list(self, root: str, steps: tuple[str, ...], limit: int) -> Listing:
        return await self._in_thread(lambda: self._list_folder(root, steps, limit), steps)

    async def read(self, root: str, steps: tuple[str, ...], start: int, limit: int) -> FileSlice:
        return await self._in_thread(lambda: self._read_part(root, steps, start, limit), steps)

    async def write(self, root: str, steps: tuple[str, ...], data: bytes, *, append: bool) -> int:
        return await self._in_thread(lambda: self._write_file(root, steps, data, append), steps, abandon=False)

    async def stat_files(self, root: str, limit: int) -> dict[str, tuple[int, int]]:
        return await self._in_thread(lambda: self._stat_files(root, limit), ())

    def stat_files_inline(self, root: str) -> dict[str, tuple[int, int]] | None:
        found: dict[str, tuple[int, int]] = {}
        with contextlib.ExitStack() as stack:
            try:
                top = stack.enter_context(self._walker.open_root(root, listed=True))
            except FileNotFoundError:
                return found  # nothing has run in it yet
            except OSError:
                return None
            try:
                return found if _stat_tree(top, "", found, [_MAX_INLINE_ENTRIES]) else None
            except OSError:
                return None  # it changed meanwhile

    async def remove(self, root: str) -> None:
        await self._in_thread(lambda: shutil.rmtree(root, ignore_errors=True), (), abandon=False)

    async def measure(self, root: str) -> FolderUsage:
        is_stopped = threading.Event()
        try:
            count = partial(measure_folder, self._walker, root, is_stopped.is_set)
            return await anyio.to_thread.run_sync(count, limiter=self._measuring, abandon_on_cancel=True)
        except OSError as error:
            raise _translated(error, quoted(root)) from error
        finally:
            is_stopped.set()  # else the server could not end before the thread

    async def _in_thread(self, work: Callable[[], T], steps: tuple[str, ...], *, abandon: bool = True) -> T:
        name = quoted("/".join(steps) or ".")
        with anyio.move_on_after(_TIMEOUT_S if abandon else None):  # a write must end
            try:
                return await anyio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=abandon)
            except OSError as error:
                raise _translated(error, name) from error
        raise OperationFailed(f"{name} did not answer within {_TIMEOUT_S:g} s: the disk it is on may be gone.")

    def _list_folder(self, root: str, steps: tuple[str, ...], limit: int) -> Listing:
        try:
            with self._walker.open_root(root) as top, top.open_folder(steps) as folder:
                names, whole = _list_names(folder)
                found = [_entry(folder, name) for name in names[:limit]]
        except FileNotFoundError:
            if steps:
                raise
            return Listing(entries=())  # nothing has run in it yet
        entries = tuple(entry for entry in found if entry is not None)
        return Listing(entries=entries, more=len(names) - len(found), whole=whole)

    def _read_part(self, root: str, steps: tuple[str, ...], start: int, limit: int) -> FileSlice:
        with self._walker.open_root(root) as top:
            _check_plain_file(top.status(steps), steps)
            with top.open_file(steps, os.O_RDONLY | _OPEN_FLAGS) as file:
                status = _check_plain_file(os.fstat(file), steps)  # it may have been replaced meanwhile
                head = platform_compat.pread(file, _HEAD_BYTES, 0) if start else b""
                data = bytearray()
                while len(data) < limit and (part := platform_compat.pread(file, limit - len(data), start + len(data))):
                    data += part
        total = max(status.st_size, start + len(data) if data else 0)
        return FileSlice(data=bytes(data), start=start, total=total, head=head)

    def _write_file(self, root: str, steps: tuple[str, ...], data: bytes, append: bool) -> int:
        os.makedirs(root, exist_ok=True)  # noqa: PTH103 - of the settings, not of a caller
        with self._walker.open_root(root) as top, open_or_make(top, steps[:-1]) as folder:
            before = folder.status(steps[-1:])
            if before is not None:
                _check_plain_file(before, steps)
                if not before.st_mode & stat.S_IWUSR:
                    raise InvalidRequest(f"{quoted('/'.join(steps))} is read-only. Nothing was changed.")
            if append and before is not None:
                return self._append_to(folder, steps, data)
            _replace_file(folder, steps[-1], data, before)
            return len(data)

    def _append_to(self, folder: Folder, steps: tuple[str, ...], data: bytes) -> int:
        flags = os.O_WRONLY | os.O_APPEND | _OPEN_FLAGS
        with self._appending, folder.open_file(steps[-1:], flags) as file:
            before = _check_plain_file(os.fstat(file), steps).st_size
            try:
                _write_all(file, data)
                os.fsync(file)
            except OSError:
                if os.fstat(file).st_size <= before + len(data):  # else a cell has appended to it, too
                    os.ftruncate(file, before)
                raise
            return os.fstat(file).st_size

    def _stat_files(self, root: str, limit: int) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        todo: list[tuple[str, ...]] = [()]
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._walker.open_root(root) as top:
            while todo and len(found) < limit:
                steps = todo.pop()
                with contextlib.suppress(OSError), top.open_folder(steps) as folder:  # it may be gone
                    todo += _stat_folder(folder, steps, found, limit)
        return found


def _stat_folder(
    folder: Folder, steps: tuple[str, ...], found: dict[str, tuple[int, int]], limit: int
) -> list[tuple[str, ...]]:
    """Add its plain files to `found`, up to `limit`, and return the folders in it."""
    below: list[tuple[str, ...]] = []
    with folder.scan() as entries:
        for entry in entries:
            if len(found) >= limit:
                break
            with contextlib.suppress(OSError):  # it may be gone
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    below.append((*steps, entry.name))
                elif stat.S_ISREG(status.st_mode):
                    found["/".join((*steps, entry.name))] = (status.st_size, status.st_mtime_ns)
    return below


def _stat_tree(folder: Folder, before: str, found: dict[str, tuple[int, int]], left: list[int]) -> bool:
    """Add the plain files in and below a folder to `found`. `left` counts entries down.

    Returns False if there are more entries. Raises OSError.
    """
    with folder.scan() as entries:
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                return False
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found[before + entry.name] = (status.st_size, status.st_mtime_ns)
            elif stat.S_ISDIR(status.st_mode):
                with folder.open_folder((entry.name,)) as below:
                    if not _stat_tree(below, f"{before}{entry.name}/", found, left):
                        return False
    return True


def _list_names(folder: Folder) -> tuple[list[str], bool]:
    names: list[str] = []
    with folder.scan() as found:
        for entry in found:
            if len(names) >= _MAX_NAMES:
                return sorted(names), False
            names.append(entry.name)
    return sorted(names), True


def _entry(folder: Folder, name: str) -> Entry | None:
    try:
        status = folder.stat(name)
    except OSError:
        return None  # it is gone
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return Entry(name=name, kind=kind, size=status.st_size if kind == "file" else 0, modified=status.st_mtime)


def _check_plain_file(status: os.stat_result | None, steps: tuple[str, ...]) -> os.stat_result:
    """Raises NotFound, or InvalidRequest if it is not a plain file with one name."""
    name = quoted("/".join(steps))
    if status is None:
        raise NotFound(f"There is no file {name} in the workspace. list_files shows what there is.")
    if stat.S_ISDIR(status.st_mode):
        raise InvalidRequest(f"{name} is a folder; list_files shows what is in it.")
    if stat.S_ISLNK(status.st_mode):
        raise InvalidRequest(_LINK_MESSAGE.format(name=name))
    if not stat.S_ISREG(status.st_mode):
        raise InvalidRequest(f"{name} is a pipe, a socket or a device, and only plain files are opened.")
    if status.st_nlink > 1:
        # the other name may be of a file of the server or of another notebook
        raise InvalidRequest(
            f"{name} has {status.st_nlink} names (hard links), and the others may be outside the workspace. Copy it "
            "to a new file in a cell."
        )
    return status


_LINK_MESSAGE = "{name} is a link or leads through one, and links are not followed. Use the path it leads to."


def _replace_file(folder: Folder, name: str, data: bytes, before: os.stat_result | None) -> None:
    """Write a new file and sync it, then rename it. It keeps the mode of the old file."""
    left = f".{uuid4().hex}{UNFINISHED_SUFFIX}"
    file = folder.create(left)
    try:
        try:
            _write_all(file, data)
            set_owner(file, before or folder.stat("."))
            if before is not None and hasattr(os, "fchmod"):
                os.fchmod(file, stat.S_IMODE(before.st_mode) & 0o777)
            os.fsync(file)
        finally:
            os.close(file)
        folder.rename(left, name)
    except BaseException:
        with contextlib.suppress(OSError):
            folder.remove(left)
        raise
    folder.sync()


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _translated(error: OSError, name: str) -> QuireError:
    if isinstance(error, InvalidFileName):
        return InvalidRequest(
            f'{name} cannot be a name of a file on this system: it has one of < > : " \\ | ? * or names a device.'
        )
    match error.errno:
        case errno.ENOENT:
            return NotFound(f"There is no {name} in the workspace. list_files shows what there is.")
        case errno.ELOOP:
            return InvalidRequest(_LINK_MESSAGE.format(name=name))
        case errno.EXDEV:
            return InvalidRequest(f"{name} is on another file system than the workspace and cannot be opened.")
        case errno.ENOTDIR | errno.EEXIST:
            return InvalidRequest(f"{name} is not a folder, or a part of its path is not one.")
        case errno.EISDIR:
            return InvalidRequest(f"{name} is a folder; name a file in it.")
        case errno.ENAMETOOLONG:
            return InvalidRequest(f"{name} is longer than a path may be.")
        case number if number in _DISK_FULL_ERRORS:
            return OperationFailed(
                f"{name} was not written: {error.strerror}. Nothing was changed. Delete files to make room."
            )
    return OperationFailed(f"{name} cannot be reached: {error.strerror}. Nothing was changed.")
