"""Saves the document while its cells run. Each save replaces the file, so that readers find a whole document."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

import anyio

from quire import platform_compat
from quire.core.errors import InvalidRequest, OperationFailed

_SAVE_INTERVAL_S = 2.0  # while one cell runs
_MAX_SAVING_SHARE = 0.1  # of the time, for saving: large documents are saved less often
_MAX_PAUSE_S = 60.0  # between two saves


class Saved:
    """Saves one document: `keep` while cells run, `finish` at the end."""

    def __init__(self, path: Path, document: Callable[[], Awaitable[str]], say: Callable[[str], None]) -> None:
        self._path = path
        self._document = document
        self._say = say
        self._ended = anyio.Event()
        self._heard = True
        self._told = False

    def heard(self) -> None:
        """The running cell has new output."""
        self._heard = True

    def ended(self) -> None:
        """A cell ended."""
        self._ended.set()

    async def keep(self) -> None:
        """Save until cancelled. A failure is reported once and retried; the run continues."""
        if not is_file(self._path):
            return
        while True:
            with anyio.move_on_after(_SAVE_INTERVAL_S):
                await self._ended.wait()
            begun = anyio.current_time()
            if self._ended.is_set() or self._heard:
                self._ended, self._heard = anyio.Event(), False
                await self._try()
            await anyio.sleep(min((anyio.current_time() - begun) / _MAX_SAVING_SHARE, _MAX_PAUSE_S))

    async def finish(self) -> None:
        text = await self._document()
        try:
            write(self._path, text)
        except OSError as error:
            where = "Standard output" if self._path == STDOUT else self._path
            raise OperationFailed(f"{where} cannot be written: {error.strerror}. What ran is not saved.") from error

    async def _try(self) -> None:
        try:
            write(self._path, await self._document())
            self._told = False
        except Exception as error:  # a full disk or a bug: only this save fails, not the run
            if not self._told:
                why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self._say(f"{self._path} cannot be written now: {why}. The run continues.")
            self._told = True


STDOUT = Path("-")


def checked(path: str) -> Path:
    """The path to write to. Raises InvalidRequest if it cannot be written."""
    target = Path(path)
    if target == STDOUT:
        return target
    if target.is_dir():
        raise InvalidRequest(f"{target} is a folder; name a file in it. Nothing was run.")
    folder = target.absolute().parent
    if not folder.is_dir():
        raise InvalidRequest(f"There is no folder {folder} to write {target.name} into. Nothing was run.")
    if is_file(target) and not os.access(folder, os.W_OK):
        raise InvalidRequest(f"The folder {folder} cannot be written to. Nothing was run.")
    return target


def is_file(path: Path) -> bool:
    """Whether this is a file: pipes and devices take a document only once."""
    return path != STDOUT and (path.is_file() or not path.exists())


def write(path: Path, text: str) -> None:
    if path == STDOUT:
        send(sys.stdout, text.encode())
    elif is_file(path):
        _replace(Path(os.path.realpath(path)), text)  # the target of a link
    else:
        path.write_text(text, "utf-8")


def send(to: IO[str], data: bytes) -> None:
    """Write bytes to a standard stream and flush it."""
    try:
        to.buffer.write(data)  # type: ignore[attr-defined]  # standard streams have one
        to.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, to.fileno())  # bytes left in the buffer would fail again at exit
        os.close(null)
        raise


def _replace(path: Path, text: str) -> None:
    temporary = path.parent / f".quire-{secrets.token_hex(8)}"
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | platform_compat.BYTES, 0o666)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            with contextlib.suppress(FileNotFoundError, AttributeError):  # a new file, or Windows, which has no fchmod
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
