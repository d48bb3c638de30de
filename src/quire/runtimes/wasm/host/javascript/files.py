"""Files of the workspace and the mounts, opened so that no name leads out of them.

Where the platform can, each folder is opened from the one above it and no link is followed; elsewhere every part is
looked at before and the file again once it is open. Only plain files that have one name are read or written.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path

from quire import systems
from quire.runtimes.wasm.host.guest import Place

LARGEST = 32 << 20  # bytes of one file
_LISTED = 10_000
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)


class NotAllowed(Exception):
    """A path that is not for this guest, or not there; says why in a sentence, with the name that was asked for."""


class Files:
    def __init__(self, place: Place) -> None:
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
        with self._opened(path, os.O_WRONLY | os.O_CREAT, writes=True) as descriptor:
            os.ftruncate(descriptor, 0)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]

    def names(self, path: str) -> list[str]:
        """What a folder holds; folders end with a slash."""
        with self._folder(path) as (where, descriptor):
            found = []
            with os.scandir(where if descriptor is None else descriptor) as listed:
                for each in listed:
                    found.append(each.name + "/" * each.is_dir(follow_symlinks=False))
                    if len(found) >= _LISTED:
                        break
            return sorted(found)

    def exists(self, path: str) -> bool:
        try:
            with self._above(path) as (where, descriptor, name):
                about = (
                    os.stat(name, dir_fd=descriptor, follow_symlinks=False) if descriptor else (where / name).lstat()
                )
            return stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
        except (NotAllowed, OSError):
            return False

    def remove(self, path: str) -> None:
        """A file, or an empty folder."""
        with self._above(path, writes=True) as (where, descriptor, name), _said(path):
            about = _about(where, descriptor, name)
            remover = os.rmdir if stat.S_ISDIR(about.st_mode) else os.unlink
            remover(name, dir_fd=descriptor) if descriptor else remover(where / name)

    def mkdir(self, path: str) -> None:
        """A folder, with those above it."""
        _root, parts, _may = self._located(path, writes=True)
        whole = self.normal(path)
        above = whole[: len(whole) - len("/".join(parts))]
        for count in range(1, len(parts) + 1):
            name = above + "/".join(parts[:count])
            with self._above(name, writes=True) as (where, descriptor, last), _said(path), _there():
                os.mkdir(last, dir_fd=descriptor) if descriptor else (where / last).mkdir()

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
        if os.name == "nt" and whole != "." and not all(map(systems.is_name, whole.split("/"))):
            raise NotAllowed(f"{path} cannot be a name of a file on this system")
        if writes and not may:
            raise NotAllowed(f"{path} is in a mount that is read-only")
        return root, [] if whole == "." else whole.split("/"), may

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int, writes: bool = False) -> Iterator[int]:
        with self._above(path, writes) as (where, above, name), _said(path):
            if above is None and (where / name).is_symlink():
                raise NotAllowed(f"{path} is a link, and links are not followed")
            if above is None and (where / name).exists() and not (where / name).is_file():
                raise NotAllowed(f"{path} is not a plain file")
            target = name if above is not None else where / name
            descriptor = os.open(target, flags | _PLAIN | _BINARY, 0o644, dir_fd=above)
            try:
                about = os.fstat(descriptor)
                if not stat.S_ISREG(about.st_mode):
                    raise NotAllowed(f"{path} is not a plain file")
                if about.st_nlink > 1:
                    raise NotAllowed(f"{path} has other names too (hard links), which may be outside")
                yield descriptor
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _above(self, path: str, writes: bool = False) -> Iterator[tuple[Path, int | None, str]]:
        """The folder that holds it, opened where the platform can, and its name there."""
        root, parts, _may = self._located(path, writes)
        if not parts:
            raise NotAllowed(f"{path} is a whole folder of the guest's")
        with self._walked(path, root, parts[:-1]) as (where, descriptor):
            yield where, descriptor, parts[-1]

    @contextlib.contextmanager
    def _folder(self, path: str) -> Iterator[tuple[Path, int | None]]:
        root, parts, _may = self._located(path)
        with self._walked(path, root, parts) as found:
            yield found

    @contextlib.contextmanager
    def _walked(self, path: str, root: Path, parts: list[str]) -> Iterator[tuple[Path, int | None]]:
        where = root.joinpath(*parts)
        if not _BY_DESCRIPTOR:
            for count in range(1, len(parts) + 1):
                if root.joinpath(*parts[:count]).is_symlink():
                    raise NotAllowed(f"{path} goes through a link, and links are not followed")
            if os.path.realpath(where) != str(where):
                raise NotAllowed(f"{path} is outside of the workspace and the mounts")
            yield where, None
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with _said(path):
            descriptor = os.open(root, flags | os.O_NOFOLLOW)  # it may have been swapped for a link since
            try:
                for each in parts:
                    below = os.open(each, flags | os.O_NOFOLLOW, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor = below
            except BaseException:
                os.close(descriptor)
                raise
        try:
            yield where, descriptor
        finally:
            os.close(descriptor)


def _about(where: Path, descriptor: int | None, name: str) -> os.stat_result:
    if descriptor is None:
        return (where / name).lstat()
    return os.stat(name, dir_fd=descriptor, follow_symlinks=False)


@contextlib.contextmanager
def _said(path: str) -> Iterator[None]:
    """What the system says, with the name that was asked for and no other."""
    try:
        yield
    except OSError as error:
        link = error.errno in (40, 62, 20) and "a link, which is not followed, or not a folder"
        raise NotAllowed(f"{path}: {link or os.strerror(error.errno or 0)}") from None


def _there() -> contextlib.AbstractContextManager[None]:
    """What is to be made may be there."""
    return contextlib.suppress(FileExistsError)
