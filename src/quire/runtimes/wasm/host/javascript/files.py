"""Files of the workspace and the mounts. No path leads out of them, and no link is followed.

Only plain files that have one name are read or written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path

from quire import platform_compat
from quire.runtimes.wasm.host.guest import Place
from quire.safe_open.folder import Folder, open_or_make
from quire.safe_open.walkers import new_walker

LARGEST = 32 << 20  # bytes of one file
_LISTED = 10_000
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # do not wait for the other end of a pipe


class NotAllowed(Exception):
    """A path that is not for this guest, or not there; says why in a sentence, with the name that was asked for."""


class Files:
    def __init__(self, place: Place) -> None:
        self._walker = new_walker(cross_mounts=True)
        workspace = Path(os.path.realpath(place.workspace))
        self._roots = [(workspace, True), *((Path(os.path.realpath(each)), may) for each, may in place.mounts)]
        self._names = [(str(place.workspace), 0), (str(workspace), 0)]
        for at, (each, _may) in enumerate(place.mounts, 1):
            self._names += [(str(each), at), (os.path.realpath(each), at)]
        self._names.sort(key=lambda named: len(named[0]), reverse=True)

    def normal(self, path: str) -> str:
        """The same file's one name: relative to the workspace, or absolute in a mount. Raises NotAllowed."""
        root, parts, _may = self._located(path)
        if root == self._roots[0][0]:
            return "/".join(parts) or "."
        return posixpath.join(root.as_posix(), *parts)

    def read(self, path: str, largest: int = LARGEST) -> bytes:
        with self._opened(path, os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_size > largest:
                raise NotAllowed(f"{path} is larger than {largest:,} bytes")
            parts, size = [], 0
            while size <= largest and (part := os.read(descriptor, 1 << 20)):
                parts.append(part)
                size += len(part)
            if size > largest:
                raise NotAllowed(f"{path} is larger than {largest:,} bytes")
            return b"".join(parts)

    def write(self, path: str, data: bytes) -> None:
        if len(data) > LARGEST:
            raise NotAllowed(f"{path} would be larger than {LARGEST:,} bytes")
        with self._opened(path, os.O_WRONLY, writes=True) as descriptor:
            os.ftruncate(descriptor, 0)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]

    def names(self, path: str) -> list[str]:
        """What a folder holds; folders end with a slash."""
        root, parts, _may = self._located(path)
        found: list[str] = []
        with self._walked(path, root, parts, listed=True) as folder, folder.scan() as entries:
            for entry in entries:
                found.append(entry.name + "/" * entry.is_dir(follow_symlinks=False))
                if len(found) >= _LISTED:
                    break
        return sorted(found)

    def exists(self, path: str) -> bool:
        try:
            with self._above(path) as (folder, name):
                about = folder.stat(name)
            return stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
        except (NotAllowed, OSError):
            return False

    def remove(self, path: str) -> None:
        """A file, or an empty folder."""
        with self._above(path, writes=True) as (folder, name):
            if stat.S_ISDIR(folder.stat(name).st_mode):
                folder.remove_folder(name)
            else:
                folder.remove(name)

    def mkdir(self, path: str) -> None:
        """A folder, with those above it."""
        root, parts, _may = self._located(path, writes=True)
        with self._walked(path, root, []) as top, open_or_make(top, tuple(parts)):
            pass

    # Finding them

    def _located(self, path: str, writes: bool = False) -> tuple[Path, list[str], bool]:
        if not path or "\0" in path or len(path) > 4096:
            raise NotAllowed("a path is a name of 1 to 4096 characters")
        said, number = path.replace("\\", "/") if os.name == "nt" else path, 0
        if path.startswith("/") or Path(path).is_absolute():
            for name, at in self._names:
                plain = name.replace("\\", "/") if os.name == "nt" else name
                if said == plain or said.startswith(plain.rstrip("/") + "/"):
                    said, number = said[len(plain) :].lstrip("/") or ".", at
                    break
            else:
                raise NotAllowed(f"{path} is outside of the workspace and the mounts")
        root, may = self._roots[number]
        whole = posixpath.normpath(said)
        if whole == ".." or whole.startswith(("../", "/")):
            raise NotAllowed(f"{path} is outside of the workspace and the mounts")
        if os.name == "nt" and whole != "." and not all(map(platform_compat.is_name, whole.split("/"))):
            raise NotAllowed(f"{path} cannot be a name of a file on this system")
        if writes and not may:
            raise NotAllowed(f"{path} is in a mount that is read-only")
        return root, [] if whole == "." else whole.split("/"), may

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int, writes: bool = False) -> Iterator[int]:
        """A plain file, which is created to be written."""
        with self._above(path, writes) as (folder, name), contextlib.ExitStack() as opened:
            about = folder.status((name,))
            if about is None and writes:
                descriptor = folder.create(name)
                opened.callback(os.close, descriptor)
            else:
                if about is not None:
                    _check(path, about)
                descriptor = opened.enter_context(folder.open_file((name,), flags | _NONBLOCK))
                _check(path, os.fstat(descriptor))  # it may be another file by now
            yield descriptor

    @contextlib.contextmanager
    def _above(self, path: str, writes: bool = False) -> Iterator[tuple[Folder, str]]:
        """The folder that holds it, open, and its name there."""
        root, parts, _may = self._located(path, writes)
        if not parts:
            raise NotAllowed(f"{path} is a whole folder of the guest's")
        with self._walked(path, root, parts[:-1]) as folder:
            yield folder, parts[-1]

    @contextlib.contextmanager
    def _walked(self, path: str, root: Path, parts: list[str], *, listed: bool = False) -> Iterator[Folder]:
        with (
            _named(path),
            self._walker.open_root(str(root)) as top,
            top.open_folder(tuple(parts), listed=listed) as folder,
        ):
            yield folder


def _check(path: str, about: os.stat_result) -> None:
    if stat.S_ISLNK(about.st_mode):
        raise NotAllowed(f"{path} is a link, and links are not followed")
    if not stat.S_ISREG(about.st_mode):
        raise NotAllowed(f"{path} is not a plain file")
    if about.st_nlink > 1:
        raise NotAllowed(f"{path} has other names too (hard links), which may be outside")


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn an OSError into NotAllowed with the path that was asked for and no other."""
    try:
        yield
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.ENOTDIR) and "a link, which is not followed, or not a folder"
        raise NotAllowed(f"{path}: {link or os.strerror(error.errno or 0)}") from None
