"""Open files: path, mode, position and buffered data.

A dump runs in a fork that shares file positions with the original process. So it must not move them or write data
that the original still has buffered.
"""

from __future__ import annotations

import codecs
import gc
import io
import os
import stat
import tempfile
import weakref
from functools import partial
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.file_paths import path_of
from quire.worker.snapshot.reducers import (
    Context,
    NotSerializable,
    after_load,
    rebuilds,
    reduce_itself,
    reduces,
    reduces_named,
    trial_loads,
    with_article,
)

_open = open
_MAX_CONTENT_BYTES = 64 << 20  # of temporary files
_FILE = "an open file"


@reduces(io.TextIOWrapper)
def reduce_text(context: Context, file: io.TextIOWrapper) -> Any:
    return _reduce_file(file, {"encoding": file.encoding, "errors": file.errors})


@reduces(io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
def reduce_binary(context: Context, file: Any) -> Any:
    return _reduce_file(file, None)


def _reduce_file(file: Any, words: dict[str, Any] | None) -> Any:
    if file.closed:
        return (closed_file, (file.mode, _layer(file), words, file.name))
    raw = _raw_file(file)
    if not isinstance(raw, io.FileIO):
        raise NotSerializable("a stream", f"it reads from {with_article(raw)}")
    if not isinstance(raw.name, (str, bytes, os.PathLike)):
        return _reduce_unnamed(file, raw, words)
    path = path_of(raw.name, raw.fileno())
    _check_path(path, raw)
    position, unwritten = _position(file, raw)
    if words is not None:
        flags = {"line_buffering": file.line_buffering, "write_through": file.write_through}
        words = {**words, "newline": _newline(file, path), "flags": flags}
    same = _size_and_time(os.fstat(raw.fileno()))
    return (open_again, (path, file.mode, _layer(file), words, position, unwritten, same, raw.name))


def _reduce_unnamed(file: Any, raw: io.FileIO, words: dict[str, Any] | None) -> Any:
    """An unnamed temporary file, with its content."""
    state = os.fstat(raw.fileno())
    if not stat.S_ISREG(state.st_mode) or state.st_nlink or state.st_size > _MAX_CONTENT_BYTES:
        raise NotSerializable(_FILE, "it is no file with a path")
    position, unwritten = _position(file, raw)
    words = None if words is None else {**words, "newline": _newline(file, "")}
    return (make_unnamed, (words, os.pread(raw.fileno(), state.st_size, 0), position, unwritten))


@rebuilds
def make_unnamed(words: Any, content: bytes, position: int, unwritten: bytes) -> Any:
    file: Any = tempfile.TemporaryFile("w+b" if words is None else "w+", **(words or {}))  # noqa: SIM115 - it stays open
    os.pwrite(file.fileno(), content, 0)
    file.seek(position)
    _write_later(file, unwritten)
    return file


def _layer(file: Any) -> str:
    return "raw" if isinstance(file, io.FileIO) else "text" if isinstance(file, io.TextIOWrapper) else "buffered"


def _size_and_time(state: os.stat_result) -> tuple[int, int]:
    return (state.st_size, state.st_mtime_ns)


def _raw_file(file: Any) -> Any:
    for inner in ("buffer", "raw"):
        file = getattr(file, inner, file)
    return file


def _check_path(path: str, raw: io.FileIO) -> None:
    """Raises NotSerializable unless the path leads to this regular file."""
    here = os.fstat(raw.fileno())
    if not stat.S_ISREG(here.st_mode) and path != os.devnull:
        raise NotSerializable(_FILE, "it is no regular file")
    try:
        there = os.stat(path)
    except OSError:
        raise NotSerializable(_FILE, "it was deleted") from None
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
        raise NotSerializable(_FILE, "its path leads to another file by now")


def _newline(file: Any, path: str) -> str | None:
    """The newline argument, which has no attribute: found among the strings that the object refers to, between
    encoding and errors. A second string is text read ahead."""
    parts = gc.get_referents(file)
    first = next(at for at, part in enumerate(parts) if type(part) is str)
    texts = [part for part in parts[first + 1 :] if type(part) is str][:-1]
    universal = any(type(part) is io.IncrementalNewlineDecoder for part in parts)  # newline is None or ""
    if not universal or len(texts) == 2:
        return texts[0] if texts else None
    read = any(type(part) is tuple for part in parts)
    if texts == [""] and read and (not path or _has_returns(path)):
        raise NotSerializable(_FILE, "how it reads line ends cannot be found")
    return "" if texts and not read else None


def _has_returns(path: str) -> bool:
    """Only then do None and "" differ."""
    try:
        with _open(path, "rb") as content:
            return b"\r" in content.read(_MAX_CONTENT_BYTES)
    except OSError:
        return True


def _position(file: Any, raw: io.FileIO) -> tuple[int, bytes]:
    """The position, and buffered data to be written there."""
    if isinstance(file, io.FileIO):
        return os.lseek(raw.fileno(), 0, os.SEEK_CUR), b""
    try:
        if not raw.writable():
            return file.tell(), b""
        buffer = getattr(file, "buffer", file)
        real = os.lseek(raw.fileno(), 0, os.SEEK_CUR)
        if buffer.tell() < real:  # it has read ahead; flushing would move the position
            if file is buffer:
                return buffer.tell(), b""
            raise NotSerializable(_FILE, "it is being read and written")
        unwritten = _unwritten(file, raw.fileno())
        return (real, unwritten) if unwritten or file is buffer else (file.tell(), b"")
    except OSError as error:
        raise NotSerializable(_FILE, f"its position is not known: {error}") from None


def _unwritten(file: Any, number: int) -> bytes:
    """Buffered data: flushed to a temporary file and put back."""
    with tempfile.TemporaryFile() as catch:
        aside = os.dup(number)
        try:
            os.dup2(catch.fileno(), number)
            file.flush()
        finally:
            os.dup2(aside, number)
            os.close(aside)
        caught = os.pread(catch.fileno(), _MAX_CONTENT_BYTES, 0)
    if caught:
        getattr(file, "buffer", file).write(caught)
    return caught


@rebuilds
def open_again(
    path: str,
    mode: str,
    layer: str,
    words: Any,
    position: int,
    unwritten: bytes,
    print_: tuple[int, int],
    name: Any = None,
) -> Any:
    """Open it at the same position, without truncating. A changed file is lost."""
    try:
        state = os.stat(path)
    except OSError as error:
        return tombstones.lost_on_load(_FILE, f"{path} cannot be opened: {error.strerror}")
    writes = any(letter in mode for letter in "wax+")
    if state.st_size != print_[0] or (not writes and state.st_mtime_ns != print_[1]):
        empties = f"; opening it with mode {mode!r} empties it" if "w" in mode else ""
        return tombstones.lost_on_load(_FILE, f"{path} was changed since{empties}")
    try:
        file = _open_without_truncating(path, mode, layer, words)
        file.seek(position)
    except (OSError, ValueError) as error:
        return tombstones.lost_on_load(_FILE, f"{path} cannot be opened: {error}")
    _write_later(file, unwritten)
    return _with_name_and_mode(file, mode, path if name is None else name)


def _with_name_and_mode(file: Any, mode: str, name: Any) -> Any:
    """The file with its original name and mode."""
    _raw_file(file).name = name
    if isinstance(file, io.TextIOWrapper):
        file.mode = mode  # type: ignore[misc]
    return file


def _write_later(file: Any, unwritten: bytes) -> None:
    """Put data back into its buffers."""
    if unwritten and not trial_loads:
        after_load(partial(getattr(file, "buffer", file).write, unwritten))


def _open_without_truncating(path: str, mode: str, layer: str, words: Any) -> Any:
    """Open a file by its mode, but never truncate it."""
    plus = "+" in mode

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags & ~(os.O_TRUNC | os.O_EXCL | os.O_CREAT))

    kind = next(letter for letter in mode if letter in "rwax")
    kind = "w" if kind == "x" else kind
    if layer == "text":
        chosen = {key: value for key, value in words.items() if key != "flags"}
        file: Any = _open(path, kind + "+" * plus, opener=opener, **chosen)
        file.reconfigure(**words.get("flags", {}))
        return file
    return _open(path, kind + "b" + "+" * plus, buffering=0 if layer == "raw" else -1, opener=opener)


@rebuilds
def closed_file(mode: str, layer: str, words: Any, name: Any) -> Any:
    file = _with_name_and_mode(_open_without_truncating(os.devnull, mode, layer, words), mode, name)
    file.close()
    return file


@reduces(codecs.StreamReaderWriter)
def reduce_coded(context: Context, file: Any) -> Any:
    """The result of `codecs.open`, with text read ahead."""
    ahead = {key: value for key, value in vars(file.reader).items() if key != "stream"}
    own = {key: value for key, value in vars(file).items() if key not in ("stream", "reader", "writer")}
    arguments = (file.stream, type(file.reader), type(file.writer), file.errors)
    return (make_coded, arguments, (own, ahead), None, None, fill_coded)


@rebuilds
def make_coded(stream: Any, reader: Any, writer: Any, errors: str) -> Any:
    return stream if tombstones.is_tombstone(stream) else codecs.StreamReaderWriter(stream, reader, writer, errors)


@rebuilds
def fill_coded(file: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    if not tombstones.is_tombstone(file):
        vars(file).update(state[0])
        vars(file.reader).update(state[1])


# Temporary files: with their content, since they are deleted with the process


@reduces(tempfile._TemporaryFileWrapper)
def reduce_temporary(context: Context, wrapper: Any) -> Any:
    if wrapper.closed:
        return (closed_file, (wrapper.mode, "buffered", None, wrapper.name))
    raw = _raw_file(wrapper.file)
    position, unwritten = _position(wrapper.file, raw)
    size = os.fstat(raw.fileno()).st_size
    if size > _MAX_CONTENT_BYTES:
        raise NotSerializable("a temporary file", f"its {size:,} bytes are too many")
    content = _content(raw.fileno(), wrapper.name, size)
    delete = getattr(wrapper, "delete", True)
    words = {}
    if isinstance(wrapper.file, io.TextIOWrapper):
        words = {"encoding": wrapper.encoding, "errors": wrapper.errors, "newline": _newline(wrapper.file, "")}
    return (make_temporary, (wrapper.name, wrapper.mode, words, content, position, unwritten, delete))


def _content(number: int, path: str, size: int) -> bytes:
    try:
        with _open(path, "rb") as content:
            return content.read()
    except OSError:
        return os.pread(number, size, 0)


@rebuilds
def make_temporary(
    name: str, mode: str, words: Any, content: bytes, position: int, unwritten: bytes, delete: bool
) -> Any:
    if not os.path.exists(name):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with _open(name, "xb") as fresh:
            fresh.write(content)
    file = _open_without_truncating(name, mode.replace("b", ""), "text" if words else "buffered", words)
    file.seek(position)
    _write_later(file, unwritten)
    wrapper = tempfile._TemporaryFileWrapper(file, name, False)
    if delete:
        after_load(partial(_delete_with, wrapper))
    return wrapper


def _delete_with(wrapper: Any) -> None:
    wrapper.delete = wrapper._closer.delete = True


@reduces(tempfile.TemporaryDirectory)
def reduce_directory(context: Context, directory: Any) -> Any:
    state = {key: value for key, value in directory.__dict__.items() if key != "_finalizer"}
    return (make_directory, (type(directory), state, directory._finalizer.alive))


@rebuilds
def make_directory(kind: Any, state: dict[str, Any], alive: bool) -> Any:
    if alive and not os.path.isdir(state["name"]):
        return tombstones.lost_on_load("a temporary directory", "it was removed with the process")
    again = kind.__new__(kind)
    again.__dict__.update(state)
    again._finalizer = weakref.finalize(again, id, 0)
    again._finalizer.detach()
    if alive:
        after_load(partial(_remove_with, again))
    return again


def _remove_with(directory: Any) -> None:
    words = {"warn_message": f"Implicitly cleaning up {directory!r}"}
    own = directory.__dict__
    words |= {key: own[f"_{key}"] for key in ("ignore_errors", "delete") if f"_{key}" in own}
    directory._finalizer = weakref.finalize(directory, directory._cleanup, directory.name, **words)


# Archives, by their file


@reduces_named("zipfile.ZipFile")
def reduce_zip(context: Context, archive: Any) -> Any:
    if archive.fp is None:
        return reduce_itself(context, archive)
    if archive.mode != "r" or archive._filePassed:
        raise NotSerializable("a zip archive", "it is being written, or reads from another object")
    path = path_of(archive.filename, archive.fp.fileno())
    return (open_zip, (path, _size_and_time(os.stat(path)), archive.pwd))


@rebuilds
def open_zip(path: str, print_: tuple[int, int], password: bytes | None) -> Any:
    import zipfile

    try:
        if _size_and_time(os.stat(path)) != print_:
            return tombstones.lost_on_load("a zip archive", f"{path} was changed since")
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        return tombstones.lost_on_load("a zip archive", f"{path} cannot be opened: {error}")
    archive.pwd = password
    return archive


@reduces_named("gzip.GzipFile")
def reduce_gzip(context: Context, file: Any) -> Any:
    if file.mode not in (1, "rb") or file.myfileobj is None:
        raise NotSerializable("a gzip file", "it is being written, or reads from another object")
    path = path_of(file.name, file.fileno())
    return (open_gzip, (path, _size_and_time(os.stat(path)), file.tell()))


@rebuilds
def open_gzip(path: str, print_: tuple[int, int], position: int) -> Any:
    import gzip

    try:
        if _size_and_time(os.stat(path)) != print_:
            return tombstones.lost_on_load("a gzip file", f"{path} was changed since")
        file = gzip.GzipFile(path)
        file.seek(position)
    except OSError as error:
        return tombstones.lost_on_load("a gzip file", f"{path} cannot be opened: {error}")
    return file


@reduces_named("zipfile.ZipExtFile")
def reduce_member(context: Context, file: Any) -> Any:
    raise NotSerializable("a file in an archive", "its position is in the archive's own file")


@reduces_named("tempfile.SpooledTemporaryFile")
def reduce_spooled(context: Context, file: Any) -> Any:
    if file._rolled:
        raise NotSerializable("a temporary file", "it has no path")
    return reduce_itself(context, file)
