"""A kernel's guest: its number in a host, its events, and what it asks of capabilities."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from quire.core.errors import OperationFailed
from quire.core.model import Died
from quire.runtimes.events import DeferredEvents, EventQueue, LatestCapabilities
from quire.runtimes.wasm import words
from quire.runtimes.wasm.pool import HostProcess
from quire.wire import frames, relay
from quire.wire.messages import BadMessage, Finished, Inspected, Native, Paged, Value

_MAKE = 30.0  # seconds a guest has to be there
_END = 1.0  # seconds it has to stop before its host is ended, with all the guests in it
_SAY = words.CREDIT // 8  # bytes of events taken before the guest hears of them
_GONE = Died(reason="The process that ran this and other sandboxes ended.", hint="Call again.")
_ANSWERS = (Inspected, Value, Paged, words.Made, words.Kept)


class Owner(Protocol):
    """Whose guest it is."""

    async def call(self, called: relay.Called) -> relay.Answer:
        """What code asks of a capability; never raises."""
        ...

    def native(self, capabilities: list[dict[str, Any]]) -> None:
        """What the code offers itself."""


class Live:
    def __init__(self, host: HostProcess, owner: Owner) -> None:
        self._host = host
        self._owner = owner
        self._calls: set[asyncio.Task[None]] = set()
        self._events = EventQueue()
        self._offered = LatestCapabilities(owner.native)
        self._decoder = frames.Decoder(words.FROM_GUEST, frames.FROM_CODE)
        self._run: str | None = None
        self._asked = self._answered = 0  # questions
        self._taken = 0  # bytes of events that the guest has not heard of yet
        self._died: Died | None = None
        self._number = host.join(self._heard)
        self.blocked = False
        """Whether its host had to be ended for it."""

    @classmethod
    async def begin(cls, host: HostProcess, make: words.Make, owner: Owner) -> Live:
        """A new guest in that host. Raises OperationFailed."""
        live = cls(host, owner)
        try:
            async with asyncio.timeout(_MAKE):
                made = await live.ask(make)
        except TimeoutError:
            host.kill()
            raise OperationFailed(f"A sandbox did not start within {_MAKE:g} s. Call again.") from None
        except BaseException:
            await live.close()
            raise
        if isinstance(made, Died):
            raise OperationFailed(f"A sandbox could not start: {made.reason} {made.hint}".rstrip())
        return live

    @property
    def alive(self) -> bool:
        return self._died is None and self._host.alive

    @property
    def host(self) -> HostProcess:
        return self._host

    def run(self, run: Any) -> None:
        self._run = run.run
        self.send(run)

    def send(self, message: Any) -> None:
        if self._died is None:
            self._host.send(self._number, message)

    async def event(self) -> Any:
        return (await self._next())[0]

    async def _next(self) -> tuple[Any, int]:
        await self._events.wait()
        if isinstance(died := self._events.peek(), Died):
            return died, 0  # it stays, for the next caller
        event, size = self._events.take()
        self._count_taken(size)
        return event, size

    def _count_taken(self, size: int) -> None:
        """Say how much was taken, now and then: a guest has credit for far more than most ever say."""
        self._taken += size
        if self._taken >= _SAY:
            self.send(words.Heard(size=self._taken))
            self._taken = 0

    async def ask(self, question: Any) -> Any:
        """The answer; what is shown meanwhile is the next run's. Answers come in order; one whose
        caller stopped waiting is skipped."""
        self.send(question)
        self._asked += 1
        mine, aside = self._asked, DeferredEvents()
        try:
            while not isinstance((taken := await self._next())[0], Died):
                if not isinstance(taken[0], _ANSWERS):
                    aside.add(*taken)
                    continue
                self._answered += 1
                if self._answered == mine:
                    break
            return taken[0]
        finally:
            self._events.put_first([(event, 0) for event, _ in aside.events()])  # the guest has heard that it was taken

    async def close(self) -> None:
        """Have it end; a host in which it does not is ended with all it holds."""
        if self._died is None:
            self.send(words.End())
            try:
                async with asyncio.timeout(_END):
                    await self._end()
            except TimeoutError:
                self.blocked = True
                self._host.kill()
                await self._end()
        self._host.leave(self._number)

    async def _end(self) -> None:
        while not isinstance((await self._next())[0], Died):
            pass

    def _heard(self, frame: bytes | None) -> None:
        if frame is None:
            self._over(_GONE)
            return
        try:
            for message in self._decoder.feed(frame):
                self._take(message, len(frame) + words.ENVELOPE.size)
        except ValueError as error:  # BadFrame, BadMessage
            self._host.kill()
            self._over(Died(reason=f"The sandbox said what is no word of ours ({error}); its process was ended."))

    def _take(self, message: Any, size: int) -> None:
        match message:
            case words.Stopped(reason=reason, hint=hint):
                self._over(Died(reason=reason[:2_000], hint=hint[:2_000]))
                return
            case relay.Called():
                self._count_taken(size)
                task = asyncio.get_running_loop().create_task(self._answer(message))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
                return
            case Native(capabilities=capabilities):
                self._count_taken(size)
                self._offered.put(capabilities)
                return
            case relay.GivenUp():
                self._count_taken(size)
                return
            case Finished(run=run) if run != self._run:
                raise BadMessage("it ended a run that does not run")
            case Finished():
                self._run = None
                self._offered.flush()
        self._events.put(message, size)

    async def _answer(self, called: relay.Called) -> None:
        self.send(await self._owner.call(called))

    def _over(self, died: Died) -> None:
        if self._died is None:
            self._died = died
            for task in self._calls:
                task.cancel()
            self._offered.close()
            self._events.put(died, 0)
