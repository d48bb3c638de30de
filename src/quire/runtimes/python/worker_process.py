"""A kernel's live process: the one that runs cells, spoken to in frames.

Events come on a socket; what the code prints lies in two pipes that the worker empties before each
frame and this side empties while the worker is silent, both under one file lock (see worker/channel.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from quire.core.errors import OperationFailed
from quire.core.model import Died
from quire.runtimes.events import EventQueue, LatestCapabilities, LoopShare, SetAside, Slice
from quire.runtimes.python import pipes
from quire.runtimes.python.capability_calls import Calls
from quire.runtimes.python.exit_reason import Exit, exit_reason, hung_up, protocol_broken
from quire.runtimes.python.kill_wait import wait_killed
from quire.runtimes.python.supervisor import Keeper
from quire.wire import frames, messages, relay
from quire.wire.messages import (
    BadMessage,
    Checkpoint,
    Checkpointed,
    Enter,
    Entered,
    Event,
    Finished,
    Inspect,
    Inspected,
    Load,
    Loaded,
    Native,
    Page,
    Paged,
    Printed,
    Read,
    Value,
)

_CHUNK = 1 << 20
_QUIET = 0.01  # seconds: how long printed bytes may lie before this side fetches them
_EVENT_BYTES = 500  # that any event takes at least
_DYING = 0.1  # seconds between the end of a process's socket and of the process
_START = 30.0  # seconds a new kernel has to say it is ready
_WAKE = 10.0  # seconds a checkpoint has
_ANSWERS = (Entered, Inspected, Value, Paged, Checkpointed, Loaded, Died)


class Owner(Protocol):
    """Whose live process this is: it answers what the code calls, and hears what the code offers itself."""

    async def call(self, called: relay.Called) -> relay.Answer: ...

    def native(self, capabilities: list[dict[str, Any]]) -> None: ...


class Live:
    def __init__(self, keeper: Keeper, owner: Owner) -> None:
        self._keeper = keeper
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._events = EventQueue()
        self._share = LoopShare.of(self._loop)
        self._offered = LatestCapabilities(owner.native)
        self._run: str | None = None  # what the worker runs now
        self._decoder = frames.Decoder(messages.EVENTS, frames.FROM_CODE)
        self._reading = False  # the socket; not while messages that arrived wait
        self._full = False  # they wait for room
        self._continuing: asyncio.Handle | None = None  # or for time: the turn in which they are taken
        self._printed: list[Printed] = []  # what was in the pipes after those
        self._broken: Died | None = None
        self._gone = asyncio.Event()
        self._fetching: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()  # what did not go at once
        self._interrupts = 0  # that were sent
        self._pid = 0
        self._pidfd = -1

    @classmethod
    async def begin(cls, keeper: Keeper, owner: Owner, order: dict[str, Any], more: Sequence[int] = ()) -> Live:
        """The process the keeper makes of this order, when it has said that it is ready; it gets `more` descriptors."""
        live = cls(keeper, owner)
        patience = _START if order["do"] == "start" else _WAKE
        try:
            async with asyncio.timeout(patience):
                await live._begin(order, more)
                first = await live.event()
        except TimeoutError:
            await live.close()
            what = "A kernel did not start" if order["do"] == "start" else "A checkpoint did not wake"
            raise OperationFailed(f"{what} within {patience:g} s; the machine may be overloaded. Call again.") from None
        except BaseException:
            await live.close()
            raise
        if not isinstance(first, messages.Ready):
            words = live._last_words(first)
            await live.close()
            raise OperationFailed(f"A kernel could not start: {words}")
        return live

    async def _begin(self, order: dict[str, Any], more: Sequence[int]) -> None:
        ours, theirs = socket.socketpair()
        relay_ours, relay_theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        lock = os.memfd_create("quire-lock")
        self._sock, self._lock = ours, lock
        self._calls = Calls(relay_ours, self._owner.call, self._distrust)
        self._pipes = (("stdout", out_read), ("stderr", err_read))
        ours.setblocking(False)
        for _, pipe in self._pipes:
            pipes.prepare_pipe(pipe)
        try:
            self._pid, self._pidfd = await self._keeper.launch(
                order, [theirs.fileno(), out_write, out_read, err_write, err_read, lock, relay_theirs.fileno(), *more]
            )
        except BaseException:
            self._close_descriptors()
            raise
        finally:
            theirs.close()
            relay_theirs.close()
            os.close(out_write)
            os.close(err_write)
        self._loop.add_reader(self._pidfd, self._on_death)
        self._read_frames()
        self._watch_pipes()

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def alive(self) -> bool:
        return not self._gone.is_set() and self._broken is None and self._ending is None

    async def run(self, run: messages.Run) -> None:
        self._run = run.run
        await self.send(run)

    async def event(self) -> Event | Died:
        return (await self._next())[0]

    async def _next(self) -> tuple[Event | Died, int]:
        await self._events.wait()
        if isinstance(died := self._events.peek(), Died):
            return died, 0  # it stays, for the next caller
        taken = self._events.take()
        if self._full and not self._events.is_full and self._ending is None:
            self._full = False
            self._continuing = self._loop.call_soon(self._take_frames)
        return taken

    async def enter(self, request: Enter, trees: Sequence[int]) -> None:
        """Have it go where it is to work, with these to mount there. Raises OperationFailed where it cannot."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._sock, [frames.encode(request, frames.FROM_SERVER)], trees)
        answer = await self._answer()
        why = answer.why_not if isinstance(answer, Entered) else self._last_words(answer)
        if why:
            raise OperationFailed(f"A kernel could not start: {why}")

    async def ask(self, question: Inspect | Read | Page | Checkpoint | Load) -> Event | Died:
        await self.send(question)
        return await self._answer()

    async def _answer(self) -> Event | Died:
        """What is shown meanwhile is the next run's. All of it is taken: a thread that waits to print may hold what the
        worker needs to answer."""
        aside = SetAside()
        while not isinstance((taken := await self._next())[0], _ANSWERS):
            aside.add(*taken)
        self._events.put_back(aside.events())
        return taken[0]

    def interrupt(self) -> None:
        if self._gone.is_set():
            return
        self._interrupts += 1  # counted first: see worker/processes/fork_interrupts.py
        os.pwrite(self._lock, self._interrupts.to_bytes(messages.INTERRUPTS_BYTES, "little"), 0)
        try:
            os.killpg(self._pid, signal.SIGINT)
        except (ProcessLookupError, PermissionError):  # the cell moved itself to another group
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGINT)

    async def close(self) -> None:
        """Kill, and wait until the process is reaped and every descriptor is closed."""
        if self._pidfd < 0:
            return
        self._kill()
        await wait_killed(self._gone.wait(), self._pid, "A kernel's process")

    async def send(self, message: Any) -> None:
        data = frames.encode(message, frames.FROM_SERVER)
        with contextlib.suppress(OSError):  # a dead kernel says so itself, through its pidfd
            sent = 0
            with contextlib.suppress(BlockingIOError):
                sent = self._sock.send(data)
            if sent < len(data):
                rest = self._loop.create_task(self._loop.sock_sendall(self._sock, memoryview(data)[sent:]))
                self._sending.add(rest)
                rest.add_done_callback(self._sending.discard)
                await asyncio.wait([rest])
                rest.cancelled() or rest.exception()  # looked at: see above

    def tell(self, words: str) -> None:
        """Say something to whoever reads what the code writes."""
        if self.alive and not self._events.is_full:
            self._put_printed(Printed(stream="stderr", data=words.encode()))

    def _put_printed(self, printed: Printed) -> None:
        self._events.put(printed, _EVENT_BYTES + len(printed.data))

    def _read_frames(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self._on_frames)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock.fileno())

    def _on_frames(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stop_reading()
            # a dying process closes its socket a moment before its pidfd tells
            self._loop.call_later(_DYING, self._on_silence)
            return
        self._decoder.add(data)
        self._take_frames()

    def _take_frames(self) -> None:
        """Take the messages that arrived whole: as many as there is room for, and time in this turn of the loop."""
        self._continuing = None
        taking = Slice()
        while not self._events.is_full and not taking.is_over:
            if not self._take_frame():
                self._take_between_frames()
                return
        self._stop_reading()
        if taking.is_over:
            self._continuing = self._loop.call_later(self._share.rest_after(taking.spent), self._take_frames)
        else:
            self._full = True

    def _take_frame(self) -> bool:
        """Take one message; whether there was a whole one."""
        if self._broken is not None:
            return False
        try:
            if (taken := self._decoder.take()) is not None:
                self._take(*taken)
                return True
        except ValueError as error:  # BadFrame, BadMessage
            self._distrust(str(error))
        return False

    def _take_between_frames(self) -> None:
        for printed in self._printed:
            self._put_printed(printed)
        self._printed = []
        if self._broken is None and self._ending is None:
            self._read_frames()
        else:
            self._stop_reading()

    def _take(self, event: Event, size: int) -> None:
        if isinstance(event, Native):
            self._offered.put(event.capabilities)
            return
        if isinstance(event, Finished):
            if event.run != self._run:
                raise BadMessage("it ended a run that does not run")
            self._run = None
            self._offered.pass_on()
        self._events.put(event, _EVENT_BYTES + size)

    def _on_silence(self) -> None:
        """A worker that closed its socket and lives can say nothing more."""
        if self._ending is None and not self._gone.is_set():
            self._broken = self._broken or hung_up()
            self._kill()

    def _distrust(self, why: str) -> None:
        self._broken = self._broken or protocol_broken(why)
        self._kill()

    # What is printed while the worker is silent

    def _watch_pipes(self) -> None:
        self._fetching = None
        if self._gone.is_set():
            return
        for _, pipe in self._pipes:
            self._loop.add_reader(pipe, self._on_printed)

    def _on_printed(self) -> None:
        # not at once: a quick cell's output comes with its last frame, without this detour
        for _, pipe in self._pipes:
            self._loop.remove_reader(pipe)
        self._fetching = self._loop.call_later(_QUIET, self._fetch)

    def _fetch(self) -> None:
        if self._reading and not self._events.is_full:
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass  # the worker is sending: it brings the bytes itself
            else:
                try:
                    self._take_printed()
                finally:
                    fcntl.lockf(self._lock, fcntl.LOCK_UN)
                self._take_frames()
        self._watch_pipes()

    def _take_printed(self) -> None:
        """Under the lock: frames sent so far, then what lies in the pipes. Not what is sent meanwhile: only a process
        that does not keep to the lock does that, and it may never end."""
        printed = [Printed(stream=name, data=data) for name, pipe in self._pipes if (data := pipes.read(pipe))]
        with contextlib.suppress(OSError):
            if sent := pipes.count(self._sock):
                self._decoder.add(self._sock.recv(sent))
        self._printed += printed

    # The end

    def _kill(self) -> None:
        if self._pidfd < 0 or self._gone.is_set():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _on_death(self) -> None:
        self._calls.close()
        self._loop.remove_reader(self._pidfd)
        self._ending = self._loop.create_task(self._bury())

    async def _bury(self) -> None:
        self._stop_reading()
        for _, pipe in self._pipes:
            self._loop.remove_reader(pipe)
        for handle in (self._fetching, self._continuing):
            if handle is not None:
                handle.cancel()
        ended = Exit()
        try:
            ended = await self._keeper.status_of(self._pid)  # and what the cell started is gone too
            self._take_printed()
            await self._take_rest()
        finally:  # whatever comes between: somebody waits for this
            reason = self._broken or exit_reason(ended)
            self._close_descriptors()
            self._offered.close()
            self._events.put(reason, _EVENT_BYTES)
            self._gone.set()

    async def _take_rest(self) -> None:
        """What it said before it ended: a frame's size at the most, and what fits a socket."""
        taking = Slice()
        while self._take_frame():
            if taking.is_over:
                await asyncio.sleep(self._share.rest_after(taking.spent))
                taking = Slice()
        self._take_between_frames()

    def _close_descriptors(self) -> None:
        self._calls.close()
        for each in list(self._sending):
            each.cancel()
        if self._sock.fileno() >= 0:  # a descriptor that is closed while it is waited for makes the next one deaf
            self._loop.remove_writer(self._sock.fileno())
        for descriptor in (self._pidfd, self._lock, *(pipe for _, pipe in self._pipes)):
            if descriptor >= 0:
                os.close(descriptor)
        self._sock.close()

    def _last_words(self, first: Event | Died) -> str:
        said = b"".join(event.data for event in [first, *self._events] if isinstance(event, Printed))
        died = next((event.reason for event in [first, *self._events] if isinstance(event, Died)), "")
        return " ".join(filter(None, [said.decode("utf-8", "replace").strip(), died]))
