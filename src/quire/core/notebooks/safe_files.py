"""Read and write files without following links out of a workspace. A file is written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import anyio.to_thread

from quire import platform_compat
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.limits.workspace_paths import quoted
from quire.safe_open.folder import open_or_make
from quire.safe_open.walkers import new_walker

MAX_READ_BYTES = 50_000_000  # of a file that is read whole
_DIGEST_XATTR = "user.quire.written"  # the digest of a file that Quire wrote
_TEMP_SUFFIX = ".quire-new"  # of a file that is being written
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # missing on Windows
# do not wait for a pipe or take over a terminal
_SAFE_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_TEMP_MAX_AGE_S = 60.0  # older ones were left by a killed server


def resolve_inside(workspace: str, path: str) -> Path:
    """The real path of `path` in the workspace. Raises InvalidRequest if a link leads out of it."""
    root = Path(workspace).resolve()
    if "\x00" in path:
        raise InvalidRequest("A path cannot hold a NUL byte.")
    try:
        real = (root / path).resolve()
    except (OSError, RuntimeError):
        raise InvalidRequest(f"{quoted(path)} cannot be resolved.") from None
    if real != root and root not in real.parents:
        raise InvalidRequest(f"{quoted(path)} is outside the notebook's workspace {workspace}. Give a path inside it.")
    return real


async def write_in_workspace(workspace: str, path: str, text: str) -> Path:
    """Write a text file in the workspace. A reader sees the old content or the new."""
    target = resolve_inside(workspace, path)
    await anyio.to_thread.run_sync(write_resolved, target, text)
    return target


async def read_in_workspace(workspace: str, path: str) -> str:
    name = f"{quoted(path)} in the notebook's workspace {workspace}"
    return await anyio.to_thread.run_sync(_read_inside, resolve_inside(workspace, path), name)


async def read_file(path: Path, name: str = "") -> str:
    """The text of a file of at most `MAX_READ_BYTES`, even if its size is reported wrong."""
    return await anyio.to_thread.run_sync(_read, path, name or quoted(str(path)))


def write_file(path: Path, text: str) -> None:
    """Write a text file. Raises OperationFailed, and changes nothing, if it cannot be written."""
    write_resolved(Path(os.path.realpath(path.parent)) / path.name, text)


def write_resolved(path: Path, text: str) -> None:
    """The same for a path without links. A link that is created meanwhile is not followed."""
    try:
        with pinned_path(path, make=True) as place:
            replace_file(place, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise OperationFailed(
            f"{quoted(str(path))} could not be written: {error.strerror}. Nothing was changed."
        ) from error


@contextmanager
def pinned_path(path: Path, *, make: bool = False) -> Iterator[Path]:
    """A path to the same file through its open folder, so that replacing a folder with a link cannot redirect it.

    With `make` missing folders are created. Raises OSError if there is a link in the path.
    """
    if sys.platform != "linux":  # no kernel runs here
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        return
    steps = path.parent.parts[1:]
    with (
        new_walker(cross_mounts=True).open_root("/") as top,
        open_or_make(top, steps) if make else top.open_folder(steps, listed=False) as folder,
    ):
        yield folder.path / path.name


def replace_file(path: Path, data: bytes) -> os.stat_result:
    """Write a temporary file, sync it and rename it to `path`, with the old file's owner and mode. Returns its stat."""
    before = _check_replaceable(path)
    left = path.with_name(f".{path.name[:150]}.{uuid4().hex[:8]}{_TEMP_SUFFIX}")
    handle = os.open(left, os.O_WRONLY | os.O_CREAT | os.O_EXCL | platform_compat.BYTES, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if before is not None and hasattr(os, "fchown"):
                with contextlib.suppress(PermissionError):
                    os.fchown(handle, before.st_uid, before.st_gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode))
            _store_digest(handle, data)
            os.fsync(handle)
            written = os.fstat(handle)
        left.replace(path)
    except BaseException:
        left.unlink(missing_ok=True)
        raise
    platform_compat.sync_folder(path.parent)
    return written


def is_unchanged(path: Path, *digests: str) -> bool:
    """Whether Quire wrote the file and it was not changed since, or it has one of these digests."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return found in digests or found == os.getxattr(path, _DIGEST_XATTR).decode("ascii", "replace")
    except (OSError, AttributeError):  # not every file system has extended attributes
        return False


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def back_up(path: Path) -> Path:
    """Give the file a second name with the date beside it, so that the first may be overwritten. Returns that path."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 100):
        more = f"-{number}" if number > 1 else ""
        aside = path.with_name(f"{path.stem}.{moment}{more}.theirs{path.suffix}")
        if not aside.exists():
            _link_or_copy(path, aside)
            return aside
    raise OSError(errno.EEXIST, "there are too many versions of it", str(path))


def _link_or_copy(path: Path, aside: Path) -> None:
    try:
        aside.hardlink_to(path)
    except OSError:  # not every file system has hard links
        shutil.copy2(path, aside, follow_symlinks=False)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of a server that was killed while it wrote."""
    with contextlib.suppress(OSError):
        for left in folder.glob(f".*{_TEMP_SUFFIX}"):
            if time.time() - left.lstat().st_mtime > _TEMP_MAX_AGE_S:
                left.unlink()


def _check_replaceable(path: Path) -> os.stat_result | None:
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(there.st_mode):
        raise OSError(errno.EISDIR, "it is not a file", str(path))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return there


def _store_digest(handle: int, data: bytes) -> None:
    if hasattr(os, "setxattr"):
        with contextlib.suppress(OSError):  # not every file system has extended attributes
            os.setxattr(handle, _DIGEST_XATTR, digest(data).encode("ascii"))


def _read_inside(path: Path, name: str) -> str:
    """Read a file of a workspace, where code may create symbolic and hard links meanwhile."""
    try:
        with pinned_path(path) as place:
            return _read(place, name, refuse_links=True)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            raise NotFound(f"There is no file {name}.") from None
        raise InvalidRequest(f"{name} cannot be read: {error.strerror}.") from error


def _read(path: Path, name: str, *, refuse_links: bool = False) -> str:
    try:
        data = _bytes(path, name, refuse_links)
        return data.decode("utf-8-sig")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENXIO):
            raise NotFound(f"There is no file {name}.") from None
        raise InvalidRequest(f"{name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name} is not UTF-8 text: byte {error.start} cannot be read.") from None


def _bytes(path: Path, name: str, refuse_links: bool) -> bytes:
    if refuse_links and not _NOFOLLOW and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    handle = os.open(path, os.O_RDONLY | platform_compat.BYTES | _SAFE_OPEN_FLAGS | (_NOFOLLOW if refuse_links else 0))
    there = os.fstat(handle)
    if refuse_links and there.st_nlink > 1 and stat.S_ISREG(there.st_mode):
        os.close(handle)
        raise InvalidRequest(
            f"{name} has other names (hard links), which may be outside of the workspace. Copy it in a cell."
        )
    if not stat.S_ISREG(there.st_mode):
        os.close(handle)
        raise NotFound(f"There is no file {name}.")
    with os.fdopen(handle, "rb") as file:
        if there.st_size > MAX_READ_BYTES:
            raise InvalidRequest(
                f"{name} has {there.st_size:,} bytes, over the limit of {MAX_READ_BYTES:,}. It was not read."
            )
        data = file.read(MAX_READ_BYTES + 1)
    if len(data) > MAX_READ_BYTES:
        raise InvalidRequest(f"{name} has more than {MAX_READ_BYTES:,} bytes, the limit. It was not read.")
    return data
