"""The host processes: each holds several guests, is given new ones while it has room, and is ended with all of them
where one does not stop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quire.core.errors import InvalidRequest, OperationFailed
from quire.runtimes.events import LoopShare, TimeSlice
from quire.runtimes.wasm import words
from quire.runtimes.wasm.host.guest import NotReady
from quire.runtimes.wasm.reach import Reach
from quire.wire import frames

log = logging.getLogger(__name__)
_ROOM = 50  # guests in a host
_HELLO = 120.0  # seconds a host may be silent while it loads its program
_STDOUT, _STDERR = 1, 2
_LAST = 20  # lines of what a host said last
_LONGEST = 1 << 16  # bytes of a line
_OURS = str(Path(__file__).parents[3])  # where the package lies
_PLAIN = re.compile("PATH|HOME|LANG|LANGUAGE|LC_[A-Z]+|TZ|PYTHON[A-Z]*|VIRTUAL_ENV|LD_LIBRARY_PATH|SYSTEMROOT|TE?MP")


class HostProcess(asyncio.SubprocessProtocol):
    """One of them, and the guests in it, all of one owner: each hears its own frames, and the end."""

    _transport: asyncio.SubprocessTransport

    def __init__(self, *, owner: str, alone: bool) -> None:
        self.owner = owner
        self.alone = alone  # it holds one guest, and gets no other
        self.claims = 0  # guests that are about to join
        self._opener = words.Opener(frames.FROM_CODE)
        self._guests: dict[int, Callable[[bytes | None], None]] = {}
        self._numbers = itertools.count(1)
        self._hello: asyncio.Future[words.Hello] = asyncio.get_running_loop().create_future()
        self._said: list[str] = []
        self._line = b""  # that is not whole yet
        self._silent = False  # it will not say anything more
        self._why = ""
        self._ended = asyncio.Event()

    @classmethod
    async def start(cls, command: tuple[str, ...], *, owner: str, alone: bool) -> HostProcess:
        # a session of its own: a signal to the server's group does not end it before it saved
        _, host = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(owner=owner, alone=alone),
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environ(), start_new_session=True,
        )  # fmt: skip
        return host

    @property
    def alive(self) -> bool:
        return not self._silent and self._transport.get_returncode() is None and not _has_ended(self.pid)

    @property
    def guests(self) -> int:
        return len(self._guests) + self.claims

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    async def hello(self) -> words.Hello:
        """What it said first. Raises OperationFailed where it said nothing, NotReady where it has no program."""
        while True:
            said = self._said
            try:
                async with asyncio.timeout(_HELLO):
                    return await asyncio.shield(self._hello)
            except TimeoutError:
                if self._said is said:
                    self.kill()
                    raise OperationFailed(
                        f"A host of WebAssembly guests was silent for {_HELLO:g} s. Call again."
                    ) from None

    def join(self, heard: Callable[[bytes | None], None]) -> int:
        """A number for a new guest, whose frames `heard` gets; None where the host is gone."""
        number = next(self._numbers)
        self._guests[number] = heard
        return number

    def leave(self, guest: int) -> None:
        self._guests.pop(guest, None)

    def send(self, guest: int, message: Any) -> None:
        if self.alive:
            stdin = self._transport.get_pipe_transport(0)
            assert isinstance(stdin, asyncio.WriteTransport)
            stdin.write(words.sealed(guest, message, frames.FROM_SERVER))

    def kill(self) -> None:
        if self.alive:  # not by asyncio, which would bury one that has ended, and then miss it
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    async def close(self) -> None:
        self.kill()
        await self._ended.wait()

    # What the event loop tells of it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._overhear(data)
        elif not self._silent:
            taking = TimeSlice()
            try:
                for number, frame in self._opener.feed(data):
                    self._heard(number, frame)
            except ValueError as error:  # BadFrame, BadMessage
                self._why = f" It said what is no word of ours ({error})."
                self._fall_silent()
            if taking.is_used_up:
                self._rest(LoopShare.for_loop(asyncio.get_running_loop()).pause_after(taking.spent))

    def _rest(self, seconds: float) -> None:
        """Read nothing meanwhile: other kernels have their turn."""
        stdout = self._transport.get_pipe_transport(_STDOUT)
        assert isinstance(stdout, asyncio.ReadTransport)
        stdout.pause_reading()
        asyncio.get_running_loop().call_later(seconds, stdout.resume_reading)

    def _heard(self, number: int, frame: bytes) -> None:
        if number:
            if number in self._guests:
                self._guests[number](frame)
            return
        (hello,) = frames.Decoder({"Hello": words.Hello}).feed(frame)
        if not self._hello.done():
            self._hello.set_result(hello)

    def _overhear(self, data: bytes) -> None:
        """What it writes to stderr: nothing, where all is well."""
        *lines, self._line = (self._line + data).split(b"\n")
        self._line = self._line[-_LONGEST:]
        for line in lines:
            self._said = [*self._said[-_LAST:], line.decode("utf-8", "replace").rstrip()]
            log.log(logging.WARNING if self._hello.done() else logging.INFO, "a host of guests: %s", self._said[-1])

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self.kill()
        self._silent = True

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, and all it said is heard."""
        self._silent = True
        if self._line:
            self._overhear(b"\n")
        self._transport.close()
        if not self._hello.done() and self._transport.get_returncode() == words.NOT_READY:
            self._hello.set_exception(NotReady())
        elif not self._hello.done():
            last = "\n".join(self._said)
            self._hello.set_exception(
                OperationFailed(f"A host of WebAssembly guests did not start.{self._why} {last}".rstrip())
            )
        self._hello.exception()  # looked at
        self._ended.set()
        for heard in list(self._guests.values()):
            heard(None)


class Pool:
    """Hosts of one language, started as they are needed. Each is of one owner, and never another's."""

    def __init__(self, language: str, assets: Path, reach: Reach) -> None:
        self._language = language
        self._assets = assets
        self._reach = reach
        self._hosts: list[HostProcess] = []
        self._starting = asyncio.Lock()
        self._making: asyncio.Task[None] | None = None
        self.doing = "starting"
        """What is done before there can be a host."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._making is not None:
                self._making.cancel()
                await asyncio.wait([self._making])
            await asyncio.gather(*(host.close() for host in self._hosts))

    def tidy(self, used: HostProcess) -> None:
        """Of the hosts without guests, the one used last stays: the next guest need not wait."""
        for host in self._hosts:
            if not host.guests and (host is not used or host.alone):
                host.kill()

    async def room(self, owner: str, images: Path, *, alone: bool = False) -> HostProcess:
        """A host of that owner with room for one more guest, `alone` in it or with others. Raises OperationFailed."""
        for made in (False, True):
            host = await self._any(owner, images, alone)
            try:
                self._reach.check((await host.hello()).layers)
                return host
            except NotReady:
                if not made:
                    await self.make()
            except InvalidRequest:
                host.kill()
                raise
            finally:
                host.claims -= 1
        raise OperationFailed(
            f"The program of {self._language} was made and is not found in {self._assets}: it is loaded only from a "
            "folder that no other user can write to. Give that folder the mode 700, or set store.assets_dir to another."
        )

    async def _any(self, owner: str, images: Path, alone: bool) -> HostProcess:
        async with self._starting:
            self._hosts = [host for host in self._hosts if host.alive]
            for host in self._hosts:
                if host.owner == owner and host.guests < _ROOM and not (host.alone or alone):
                    host.claims += 1
                    return host
            command = _command(self._language, str(self._assets), await asyncio.to_thread(self._reach.words, images))
            host = await HostProcess.start(command, owner=owner, alone=alone)
            host.claims += 1
            self._hosts.append(host)
            return host

    async def make(self) -> None:
        """Have the program made and compiled, by a process of its own: it starts others. Raises OperationFailed."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
            self._making.add_done_callback(lambda made: made.cancelled() or made.exception())  # also if no caller waits
        await asyncio.shield(self._making)

    async def _make(self) -> None:
        command = _command(self._language, str(self._assets))
        environ = {**os.environ, **_found()}  # npm may need any of it
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=environ, start_new_session=True
        )
        said: list[str] = []
        try:
            assert process.stderr is not None
            while line := await process.stderr.readline():
                self.doing = line.decode("utf-8", "replace").rstrip()
                said = [*said[-_LAST:], self.doing]
            await process.wait()
        finally:
            if process.returncode is None:
                _kill_group(process)
                await process.wait()
        if process.returncode:
            raise OperationFailed(
                f"The program of {self._language} could not be made. {said[-1] if said else ''}".rstrip()
            )


def _command(*given: str) -> tuple[str, ...]:
    """`-P`: files in the server's working folder are not imported."""
    return (sys.executable, "-P", "-m", "quire.runtimes.wasm.host", *given)


def _environ() -> dict[str, str]:
    """Of the server's own what a Python needs to start; it may hold secrets."""
    return {name: value for name, value in os.environ.items() if _PLAIN.fullmatch(name)} | _found()


def _found() -> dict[str, str]:
    """Where this package lies, unless Python looks there anyway: what is named so comes before its own library."""
    if Path(_OURS).name in ("site-packages", "dist-packages"):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (_OURS, os.environ.get("PYTHONPATH"))))}


def _kill_group(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


def _has_ended(pid: int) -> bool:
    """Asked of the system, where it can be: the loop hears of it a moment later, and what runs meanwhile is lost."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
