"""A run's document in a file, as it goes: written beside and moved, so that whoever looks finds a whole one."""

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

_LONG = 2.0  # seconds between two savings while one cell runs
_SHARE = 0.1  # of the time that may go into saving: the larger the document, the rarer
_RARELY = 60.0  # seconds between two times at the most


class Saved:
    """Where a run's document goes. `keep` runs beside the run, `finish` has the last word."""

    def __init__(self, path: Path, document: Callable[[], Awaitable[str]], say: Callable[[str], None]) -> None:
        self._path = path
        self._document = document
        self._say = say
        self._ended = anyio.Event()
        self._heard = True
        self._told = False

    def heard(self) -> None:
        """The cell that runs has shown something."""
        self._heard = True

    def ended(self) -> None:
        """A cell is over."""
        self._ended.set()

    async def keep(self) -> None:
        """Until cancelled. What cannot be written now may be later: it is said once, and the run goes on."""
        if not is_file(self._path):
            return
        while True:
            with anyio.move_on_after(_LONG):
                await self._ended.wait()
            begun = anyio.current_time()
            if self._ended.is_set() or self._heard:
                self._ended, self._heard = anyio.Event(), False
                await self._try()
            await anyio.sleep(min((anyio.current_time() - begun) / _SHARE, _RARELY))

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
        except Exception as error:  # a full disk, or a fault of ours: it costs this saving, not the run
            if not self._told:
                why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self._say(f"{self._path} cannot be written as yet: {why}. The run goes on.")
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
    """Not a pipe or a device, which take a document once."""
    return path != STDOUT and (path.is_file() or not path.exists())


def write(path: Path, text: str) -> None:
    if path == STDOUT:
        send(sys.stdout, text.encode())
    elif is_file(path):
        _replace(Path(os.path.realpath(path)), text)  # of a link, what it leads to
    else:
        path.write_text(text, "utf-8")


def send(to: IO[str], data: bytes) -> None:
    """These very bytes, now."""
    try:
        to.buffer.write(data)  # type: ignore[attr-defined]  # standard streams have one
        to.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, to.fileno())  # what is still in the buffer would fail again at exit
        os.close(nowhere)
        raise


def _replace(path: Path, text: str) -> None:
    beside = path.parent / f".quire-{secrets.token_hex(8)}"
    try:
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | platform_compat.BYTES, 0o666)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            with contextlib.suppress(FileNotFoundError, AttributeError):  # no file before, or no such thing on Windows
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
