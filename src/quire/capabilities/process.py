"""The process of a backend: lines in and out, the end of its stderr; always reaped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from quire.capabilities.launch import END_ALL
from quire.capabilities.line_protocol import LineProtocol
from quire.core.errors import OperationFailed

if sys.platform == "win32":
    from asyncio.windows_utils import Popen  # with pipes that the event loop can read
else:
    from subprocess import Popen

_LAUNCHER = Path(__file__).with_name("launch.py")
_SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows both kill it
_MAX_ERROR_BYTES = 8192  # of stderr
_DRAIN_SECONDS = 0.25  # for output written before its end to arrive
_POLL_INTERVAL_S = 0.02  # where the system does not report exits


class Process:
    """`write` sends a line, `on_line` gets each line it prints, and `on_end` is called once, when it has ended.

    On Linux a launcher runs the program and leads its process group, so that all processes end with it.
    """

    def __init__(self, popen: Popen[bytes], on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._popen = popen
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._is_closed = False
        self._output_ended = False
        self._lines = LineProtocol(on_line, self._on_output_end)
        self._errors = _StderrTail()
        self._input = _Stdin(self._on_input_closed)
        self._reading: list[asyncio.ReadTransport] = []
        self._exit_watch: int | asyncio.Task[None] = -1
        self._closing: asyncio.Task[None] | None = None
        self.status = "stopped listening"  # how it ended, for messages

    @classmethod
    async def start(
        cls,
        command: tuple[str, ...],
        *,
        env: dict[str, str],
        folder: str,
        on_line: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> Process:
        """Start the command. Raises OperationFailed if that is impossible."""
        program = _find_program(command[0], env.get("PATH", os.defpath), folder)
        argv = [program, *command[1:]]
        if sys.platform == "linux":
            argv = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), program, *command]
        pipe = subprocess.PIPE
        try:
            popen = Popen(  # noqa: ASYNC220 - it returns once the program is loaded, a moment
                argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=folder or None, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise OperationFailed(
                f"{command[0]} could not be started ({error}). Check the command and its folder."
            ) from error
        process = cls(popen, on_line, on_end)
        try:
            await process._attach()
        except BaseException:
            await process.close()
            raise
        return process

    async def _attach(self) -> None:
        stdin, stdout, stderr = cast(Any, (self._popen.stdin, self._popen.stdout, self._popen.stderr))
        await self._loop.connect_write_pipe(lambda: self._input, stdin)
        self._reading.append((await self._loop.connect_read_pipe(lambda: self._errors, stderr))[0])
        self._reading.append((await self._loop.connect_read_pipe(lambda: self._lines, stdout))[0])
        try:
            self._exit_watch = os.pidfd_open(self._popen.pid)
            self._loop.add_reader(self._exit_watch, self._has_exited)
        except (AttributeError, OSError):
            self._exit_watch = self._loop.create_task(self._poll_exit())

    def write(self, line: bytes) -> None:
        if self._input.transport is not None and not self._is_closed:
            self._input.transport.write(line)

    @property
    def is_full(self) -> bool:
        """Whether the write buffer is full; then wait for `room`."""
        return not self._input.room.is_set()

    async def room(self) -> None:
        await self._input.room.wait()

    @property
    def errors(self) -> str:
        """The last lines of stderr; complete ones, since a cut secret would not be redacted."""
        tail = self._errors.tail
        whole = tail if len(tail) < _MAX_ERROR_BYTES else tail.partition(b"\n")[2]
        return whole.decode("utf-8", "replace")

    async def close(self, grace: float = 2.0) -> None:
        """Ask it to exit, then kill it and its group. Completes even if the caller is cancelled."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(grace))
        await asyncio.shield(self._closing)

    async def _close(self, grace: float) -> None:
        self._is_closed = True
        if self._input.transport is not None:
            self._input.transport.close()
        for number in (None, signal.SIGTERM, _SIGKILL):
            if number is _SIGKILL:
                self._end_all()
            elif number is not None:
                self._signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._exited.wait()
                break
        self._signal(_SIGKILL)  # the rest of the group, whose id is valid until the leader is reaped
        self._popen.poll()
        await self._group_ends()
        if self._input.transport is not None:
            self._input.transport.abort()
        for transport in self._reading:
            transport.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()

    async def _group_ends(self) -> None:
        """Wait until the killed processes of the group are gone."""
        end = self._loop.time() + _DRAIN_SECONDS
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while hasattr(os, "killpg") and self._loop.time() < end:
                os.killpg(self._popen.pid, 0)
                await asyncio.sleep(0.002)

    def _end_all(self) -> None:
        """Kill all descendants: by the launcher on Linux, by taskkill on Windows."""
        if self._popen.returncode is not None:
            return
        if sys.platform == "linux":
            self._popen.send_signal(END_ALL)
        elif sys.platform == "win32":
            command, nowhere = ("taskkill", "/F", "/T", "/PID", str(self._popen.pid)), subprocess.DEVNULL
            with contextlib.suppress(OSError):
                subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        else:
            self._signal(_SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number) if hasattr(os, "killpg") else self._popen.terminate()

    async def _poll_exit(self) -> None:
        while self._exit_status() is None:  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(_POLL_INTERVAL_S)
        self._has_exited()

    def _exit_status(self) -> int | None:
        """The return code as in Popen, if possible without reaping; None while it runs."""
        if not hasattr(os, "waitid"):
            return self._popen.poll()
        ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _has_exited(self) -> None:
        if isinstance(self._exit_watch, int):
            self._loop.remove_reader(self._exit_watch)
            os.close(self._exit_watch)
        self.status = _status_text(self._exit_status())
        self._exited.set()
        self._check_end()

    def _on_output_end(self) -> None:
        self._output_ended = True
        self._check_end()

    def _on_input_closed(self) -> None:
        self._loop.call_later(_DRAIN_SECONDS, self._report_end)

    def _check_end(self) -> None:
        """Exit and end of output come together, unless a child holds the pipe."""
        if self._exited.is_set() and self._output_ended:
            self._report_end()
        else:
            self._loop.call_later(_DRAIN_SECONDS, self._report_end)

    def _report_end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_end()


def _find_program(program: str, path: str, folder: str) -> str:
    if folder and not Path(folder).is_dir():
        raise OperationFailed(f"There is no folder {folder} for {program} to work in. Create it or name another.")
    if "/" in program or os.sep in program:
        place = Path(folder or ".", program).expanduser().absolute()
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
        what = "is not executable: make it so with chmod +x" if place.is_file() else "does not exist: check the path"
        raise OperationFailed(f"{program} cannot be started: it {what}.")
    found = shutil.which(program, path=path)
    if found is None:
        raise OperationFailed(
            f"{program} is not installed or not on PATH. Install it, or give the command's full path."
        )
    return str(Path(found).absolute())


def _status_text(status: int | None) -> str:
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


class _StderrTail(asyncio.Protocol):
    """Keeps the end of stderr."""

    def __init__(self) -> None:
        self.tail = bytearray()

    def data_received(self, data: bytes) -> None:
        self.tail += data[-_MAX_ERROR_BYTES:]
        del self.tail[:-_MAX_ERROR_BYTES]


class _Stdin(asyncio.Protocol):
    """Tracks whether stdin accepts more data, and when it is closed."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed
        self.transport: asyncio.WriteTransport | None = None
        self.room = asyncio.Event()
        self.room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.room.set()
        self._closed()
