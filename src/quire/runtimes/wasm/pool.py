"""The host processes: each holds several guests, is given new ones while it has room, and is ended with all of them
where one does not stop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quire.core.errors import Failed
from quire.runtimes.wasm import words
from quire.wire import frames

log = logging.getLogger(__name__)
_ROOM = 50  # guests in a host
_HELLO = 120.0  # seconds a host may be silent while it makes or loads its program
_CHUNK = 1 << 20
_LAST = 20  # lines of what a host said last


class HostProcess:
    """One of them, and the guests in it: each hears its own frames, and the end."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._opener = words.Opener()
        self._guests: dict[int, Callable[[bytes | None], None]] = {}
        self._numbers = itertools.count(1)
        self._hello: asyncio.Future[words.Hello] = asyncio.get_running_loop().create_future()
        self._said: list[str] = []
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._overhear())]

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._tasks[0].done() and not _has_ended(self._process.pid)

    @property
    def guests(self) -> int:
        return len(self._guests)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def hello(self) -> words.Hello:
        """What it said first. Raises Failed where it said nothing."""
        while True:
            said = self._said
            try:
                return await asyncio.wait_for(asyncio.shield(self._hello), _HELLO)
            except TimeoutError:
                if self._said is said:
                    self.kill()
                    raise Failed(f"A host of WebAssembly guests was silent for {_HELLO:g} s. Call again.") from None

    @property
    def doing(self) -> str:
        """What it said last, before its hello; "" once that is said."""
        return "" if self._hello.done() else self._said[-1] if self._said else "starting"

    def join(self, heard: Callable[[bytes | None], None]) -> int:
        """A number for a new guest, whose frames `heard` gets; None where the host is gone."""
        number = next(self._numbers)
        self._guests[number] = heard
        return number

    def leave(self, guest: int) -> None:
        self._guests.pop(guest, None)

    def send(self, guest: int, message: Any) -> None:
        assert self._process.stdin is not None
        if self.alive:
            self._process.stdin.write(words.sealed(guest, message))

    def kill(self) -> None:
        if self.alive:  # asyncio would bury one that has ended, and then miss it
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        self.kill()
        await asyncio.wait(self._tasks)
        await self._process.wait()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        why = ""
        try:
            while data := await self._process.stdout.read(_CHUNK):
                for number, frame in self._opener.feed(data):
                    self._heard(number, frame)
        except ValueError as error:  # BadFrame, BadMessage
            why = f" It said what is no word of ours ({error})."
        self.kill()
        await self._process.wait()
        if not self._hello.done():
            last = "\n".join(self._said)
            self._hello.set_exception(Failed(f"A host of WebAssembly guests did not start.{why} {last}".rstrip()))
            self._hello.exception()  # looked at
        for heard in list(self._guests.values()):
            heard(None)

    def _heard(self, number: int, frame: bytes) -> None:
        if number:
            if number in self._guests:
                self._guests[number](frame)
            return
        (hello,) = frames.Decoder({"Hello": words.Hello}).feed(frame)
        if not self._hello.done():
            self._hello.set_result(hello)

    async def _overhear(self) -> None:
        """What it writes to stderr: nothing, where all is well."""
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self._said = [*self._said[-_LAST:], line.decode("utf-8", "replace").rstrip()]
            log.log(logging.WARNING if self._hello.done() else logging.INFO, "a host of guests: %s", self._said[-1])


class Pool:
    """Hosts of one language, started as they are needed."""

    def __init__(self, language: str, assets: Path) -> None:
        self._language = language
        self._assets = assets
        self._hosts: list[HostProcess] = []
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.gather(*(host.close() for host in self._hosts))

    def tidy(self) -> None:
        """Of the hosts that hold nobody, one stays: the next guest need not wait for it."""
        for host in [host for host in self._hosts if not host.guests][1:]:
            host.kill()

    async def room(self) -> HostProcess:
        """A host with room for one more guest. Raises Failed."""
        host = await self.any()
        await host.hello()
        return host

    async def any(self) -> HostProcess:
        """The same, perhaps while it still loads its program."""
        async with self._starting:
            self._hosts = [host for host in self._hosts if host.alive]
            for host in self._hosts:
                if host.guests < _ROOM:
                    return host
            host = HostProcess(await _spawn(self._language, self._assets))
            self._hosts.append(host)
            return host


async def _spawn(language: str, assets: Path) -> Process:
    command = (sys.executable, "-m", "quire.runtimes.wasm.host", language, str(assets))
    # a session of its own: whoever ends the server's group lets it save what its hosts hold
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)


def _has_ended(pid: int) -> bool:
    """Asked of the system, where it can be: the loop hears of it a moment later, and what runs meanwhile is lost."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
