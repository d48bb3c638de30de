"""Files in the folders that code works in, on disk: walked to safely, read in part, written whole or not at all."""

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
from quire.core.notebooks.paths import quoted
from quire.core.ports.files import Entry, Listing, Piece, Use
from quire.safe_open.by_descriptor import set_owner
from quire.safe_open.by_name import NoName
from quire.safe_open.folder import Folder, Walker, open_or_make
from quire.safe_open.walkers import new_walker
from quire.stores.measuring import LEFT, measure

T = TypeVar("T")
_OPEN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)  # a pipe is not waited for, a terminal not taken
_SECONDS = 30.0  # a disk has to answer
_COUNTED = 100_000  # names of a folder that are looked at
_GLANCE = 50  # names that are looked at while others wait
_HEAD = 1_000  # bytes that say what kind of file it is
_AT_ONCE = 8  # threads
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFolders:
    def __init__(self, walker: Walker | None = None) -> None:
        self._walker = walker or new_walker()
        self._threads = anyio.CapacityLimiter(_AT_ONCE)
        self._measuring = anyio.CapacityLimiter(2)  # so that many files of one keep nobody else waiting
        self._appending = threading.Lock()

    async def list(self, root: str, steps: tuple[str, ...], limit: int) -> Listing:
        return await self._in_thread(lambda: self._list(root, steps, limit), steps)

    async def read(self, root: str, steps: tuple[str, ...], start: int, limit: int) -> Piece:
        return await self._in_thread(lambda: self._read(root, steps, start, limit), steps)

    async def write(self, root: str, steps: tuple[str, ...], data: bytes, *, append: bool) -> int:
        return await self._in_thread(lambda: self._write(root, steps, data, append), steps, abandon=False)

    async def seen(self, root: str, limit: int) -> dict[str, tuple[int, int]]:
        return await self._in_thread(lambda: self._seen(root, limit), ())

    def glance(self, root: str) -> dict[str, tuple[int, int]] | None:
        found: dict[str, tuple[int, int]] = {}
        with contextlib.ExitStack() as held:
            try:
                top = held.enter_context(self._walker.open_root(root, listed=True))
            except FileNotFoundError:
                return found  # nothing has run in it yet
            except OSError:
                return None
            try:
                return found if _glanced(top, "", found, [_GLANCE]) else None
            except OSError:
                return None  # it changes this moment

    async def remove(self, root: str) -> None:
        await self._in_thread(lambda: shutil.rmtree(root, ignore_errors=True), (), abandon=False)

    async def measure(self, root: str) -> Use:
        given_up = threading.Event()
        try:
            count = partial(measure, self._walker, root, given_up.is_set)
            return await anyio.to_thread.run_sync(count, limiter=self._measuring, abandon_on_cancel=True)
        except OSError as error:
            raise _said(error, quoted(root)) from error
        finally:
            given_up.set()  # the server's end does not wait for the thread

    async def _in_thread(self, work: Callable[[], T], steps: tuple[str, ...], *, abandon: bool = True) -> T:
        name = quoted("/".join(steps) or ".")
        with anyio.move_on_after(_SECONDS if abandon else None):  # a write is not given up half way
            try:
                return await anyio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=abandon)
            except OSError as error:
                raise _said(error, name) from error
        raise OperationFailed(f"{name} did not answer within {_SECONDS:g} s: the disk it is on may be gone.")

    def _list(self, root: str, steps: tuple[str, ...], limit: int) -> Listing:
        try:
            with self._walker.open_root(root) as top, top.open_folder(steps) as folder:
                names, whole = _names(folder)
                found = [_entry(folder, name) for name in names[:limit]]
        except FileNotFoundError:
            if steps:
                raise
            return Listing(entries=())  # nothing has run in it yet
        there = tuple(each for each in found if each is not None)
        return Listing(entries=there, more=len(names) - len(found), whole=whole)

    def _read(self, root: str, steps: tuple[str, ...], start: int, limit: int) -> Piece:
        with self._walker.open_root(root) as top:
            _check(top.status(steps), steps)
            with top.open_file(steps, os.O_RDONLY | _OPEN) as file:
                there = _check(os.fstat(file), steps)  # it may be another one by now
                head = platform_compat.pread(file, _HEAD, 0) if start else b""
                data = bytearray()
                while len(data) < limit and (part := platform_compat.pread(file, limit - len(data), start + len(data))):
                    data += part
        total = max(there.st_size, start + len(data) if data else 0)
        return Piece(data=bytes(data), start=start, total=total, head=head)

    def _write(self, root: str, steps: tuple[str, ...], data: bytes, append: bool) -> int:
        os.makedirs(root, exist_ok=True)  # noqa: PTH103 - of the settings, not of a caller
        with self._walker.open_root(root) as top, open_or_make(top, steps[:-1]) as folder:
            before = folder.status(steps[-1:])
            if before is not None:
                _check(before, steps)
                if not before.st_mode & stat.S_IWUSR:
                    raise InvalidRequest(f"{quoted('/'.join(steps))} is read-only. Nothing was changed.")
            if append and before is not None:
                return self._append(folder, steps, data)
            _replace(folder, steps[-1], data, before)
            return len(data)

    def _append(self, folder: Folder, steps: tuple[str, ...], data: bytes) -> int:
        flags = os.O_WRONLY | os.O_APPEND | _OPEN
        with self._appending, folder.open_file(steps[-1:], flags) as file:
            before = _check(os.fstat(file), steps).st_size
            try:
                _write_all(file, data)
                os.fsync(file)
            except OSError:
                if os.fstat(file).st_size <= before + len(data):  # else a cell appends to it as well
                    os.ftruncate(file, before)
                raise
            return os.fstat(file).st_size

    def _seen(self, root: str, limit: int) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        todo: list[tuple[str, ...]] = [()]
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._walker.open_root(root) as top:
            while todo and len(found) < limit:
                steps = todo.pop()
                with contextlib.suppress(OSError), top.open_folder(steps) as folder:  # it may be gone by now
                    todo += _looked_into(folder, steps, found, limit)
        return found


def _looked_into(
    folder: Folder, steps: tuple[str, ...], found: dict[str, tuple[int, int]], limit: int
) -> list[tuple[str, ...]]:
    """Put its plain files there, as far as there may be more; the folders in it."""
    below: list[tuple[str, ...]] = []
    with folder.scan() as entries:
        for entry in entries:
            if len(found) >= limit:
                break
            with contextlib.suppress(OSError):  # gone by now
                there = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(there.st_mode):
                    below.append((*steps, entry.name))
                elif stat.S_ISREG(there.st_mode):
                    found["/".join((*steps, entry.name))] = (there.st_size, there.st_mtime_ns)
    return below


def _glanced(folder: Folder, before: str, found: dict[str, tuple[int, int]], left: list[int]) -> bool:
    """What is in a folder and below it; False where that is more than may be looked at. Raises OSError."""
    with folder.scan() as entries:
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                return False
            there = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(there.st_mode):
                found[before + entry.name] = (there.st_size, there.st_mtime_ns)
            elif stat.S_ISDIR(there.st_mode):
                with folder.open_folder((entry.name,)) as below:
                    if not _glanced(below, f"{before}{entry.name}/", found, left):
                        return False
    return True


def _names(folder: Folder) -> tuple[list[str], bool]:
    names: list[str] = []
    with folder.scan() as found:
        for entry in found:
            if len(names) >= _COUNTED:
                return sorted(names), False
            names.append(entry.name)
    return sorted(names), True


def _entry(folder: Folder, name: str) -> Entry | None:
    try:
        there = folder.stat(name)
    except OSError:
        return None  # gone by now
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(there.st_mode), "other")
    return Entry(name=name, kind=kind, size=there.st_size if kind == "file" else 0, modified=there.st_mtime)


def _check(there: os.stat_result | None, steps: tuple[str, ...]) -> os.stat_result:
    """A plain file with one name, or a sentence."""
    name = quoted("/".join(steps))
    if there is None:
        raise NotFound(f"There is no file {name} in the workspace. list_files shows what there is.")
    if stat.S_ISDIR(there.st_mode):
        raise InvalidRequest(f"{name} is a folder; list_files shows what is in it.")
    if stat.S_ISLNK(there.st_mode):
        raise InvalidRequest(_LINKED.format(name=name))
    if not stat.S_ISREG(there.st_mode):
        raise InvalidRequest(f"{name} is no file but a pipe, a socket or a device, which are not opened.")
    if there.st_nlink > 1:
        # the other name may be anywhere on this disk: a file of the server's, or of another notebook
        raise InvalidRequest(
            f"{name} has {there.st_nlink} names (hard links), and the others may be outside the workspace. Copy it "
            "to a new file in a cell."
        )
    return there


_LINKED = "{name} is a link or leads through one, and links are not followed. Use the path it leads to."


def _replace(folder: Folder, name: str, data: bytes, before: os.stat_result | None) -> None:
    """Beside its place, synced, then renamed into it, with the rights of what was there."""
    left = f".{uuid4().hex}{LEFT}"
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


def _said(error: OSError, name: str) -> QuireError:
    if isinstance(error, NoName):
        return InvalidRequest(
            f'{name} cannot be a name of a file on this system: of < > : " \\ | ? * it has none, and it is no device.'
        )
    match error.errno:
        case errno.ENOENT:
            return NotFound(f"There is no {name} in the workspace. list_files shows what there is.")
        case errno.ELOOP:
            return InvalidRequest(_LINKED.format(name=name))
        case errno.EXDEV:
            return InvalidRequest(f"{name} is on another file system than the workspace, and is not reached from here.")
        case errno.ENOTDIR | errno.EEXIST:
            return InvalidRequest(f"{name} is no folder, or leads through something that is none.")
        case errno.EISDIR:
            return InvalidRequest(f"{name} is a folder; name a file in it.")
        case errno.ENAMETOOLONG:
            return InvalidRequest(f"{name} is longer than a path may be.")
        case number if number in _FULL:
            return OperationFailed(
                f"{name} was not written: {error.strerror}. Nothing was changed. Delete files to make room."
            )
    return OperationFailed(f"{name} cannot be reached: {error.strerror}. Nothing was changed.")
