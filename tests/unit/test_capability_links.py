"""A connection is made when it is first needed, and made again with growing pauses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from quire.core.capabilities.connection import ReconnectingBackend
from quire.core.capabilities.model import Backend, Capability, Offered, Tool
from quire.core.errors import ConnectionLost, OperationFailed
from quire.core.model import LOCAL

DAY = 86_400.0


class Clock:
    """The loop's clock, which a test puts forward."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real, self._ahead = loop.time, 0.0
        loop.time = lambda: self._real() + self._ahead  # type: ignore[method-assign]

    async def forward(self, seconds: float) -> None:
        """So long, and until everything that was due is done."""
        self._ahead += seconds
        for _ in range(20):
            await asyncio.sleep(0)


class Fake:
    """A connection that is only known to be closed or not."""

    def __init__(self, offered: Offered) -> None:
        self.offered = offered
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


class Bench:
    """A link, the connections it made, and whether making one fails."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.made: list[Fake] = []
        self.tries = 0
        self.fails = ""
        self.offered = Offered()
        self.offers: list[Offered] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        capability = Capability(owner=LOCAL, name="mail", backend=Backend(command=("a",)), offered=Offered())
        self.link = ReconnectingBackend(
            capability, self._connect, lambda link: self.offers.append(link.capability.offered), self._soon
        )

    async def _connect(self, link: ReconnectingBackend) -> Any:
        self.tries += 1
        await asyncio.sleep(0)
        if self.fails:
            raise OperationFailed(self.fails)
        self.made.append(Fake(self.offered))
        return self.made[-1]

    def _soon(self, work: Callable[..., Any], *given: Any) -> None:
        task = asyncio.ensure_future(work(*given))
        self.tasks.add(task)

    async def refused(self) -> str:
        with pytest.raises(ConnectionLost) as lost:
            await self.link.connection()
        return str(lost.value)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(Clock(asyncio.get_running_loop()))
    yield made
    await made.link.close()
    for task in made.tasks:
        task.cancel()


async def test_it_is_connected_once_for_all_who_ask(bench: Bench) -> None:
    assert (bench.link.health, bench.tries) == ("not connected yet", 0)
    found = await asyncio.gather(*(bench.link.connection() for _ in range(10)))
    assert len(set(map(id, found))) == 1 and bench.tries == 1 and bench.link.health == "connected"


async def test_lost_connection_is_closed_and_made_again_at_once(bench: Bench) -> None:
    first = await bench.link.connection()
    bench.link.lost("it was killed")
    assert bench.link.health == "lost: it was killed"
    second = await bench.link.connection()
    assert second is not first
    await bench.clock.forward(0)
    assert bench.made[0].closed == 1 and bench.link.health == "connected"


async def test_it_comes_back_by_itself(bench: Bench) -> None:
    await bench.link.connection()
    bench.link.lost("it was killed")
    await bench.clock.forward(0)
    assert bench.tries == 2 and bench.link.health == "connected"


async def test_pauses_grow_and_who_asks_meanwhile_is_told_how_long(bench: Bench) -> None:
    await bench.link.connection()
    bench.fails = "no route"
    bench.link.lost("it was killed")
    await bench.clock.forward(0)
    tries = bench.tries
    for _ in range(50):
        assert "no route" in await bench.refused() and "tried again in" in await bench.refused()
    assert bench.tries == tries  # asking does not make it busy
    assert bench.link.health == "lost: no route"
    for _ in range(20):
        await bench.clock.forward(60)
    assert bench.tries <= tries + 6  # by itself it gives up
    before = bench.tries
    await bench.clock.forward(DAY)
    assert bench.tries == before
    bench.fails = ""
    assert await bench.link.connection() is bench.made[-1]  # the next call tries


async def test_one_that_dies_again_and_again_is_waited_for(bench: Bench) -> None:
    for _ in range(3):
        await bench.clock.forward(60)
        await bench.link.connection()
        bench.link.lost("out of memory")
        bench.link.lost("out of memory")  # twice is once
        if bench.tries < 3:
            await bench.clock.forward(0)
    assert "out of memory" in bench.link.health


async def test_after_a_steady_time_the_next_loss_is_the_first_again(bench: Bench) -> None:
    for _ in range(5):
        await bench.link.connection()
        await bench.clock.forward(11)
        bench.link.lost("it was killed")
        assert await bench.link.connection() is bench.made[-1]


async def test_after_very_many_failures_it_is_still_tried(bench: Bench) -> None:
    bench.fails = "no route"
    for _ in range(1_500):
        assert "no route" in await bench.refused()
        await bench.clock.forward(61)
    bench.fails = ""
    assert await bench.link.connection() is bench.made[-1]


async def test_changed_offer_is_reported(bench: Bench) -> None:
    bench.offered = Offered(tools=(Tool(name="search"),))
    await bench.link.connection()
    assert bench.offers == [bench.offered]
    bench.link.changed(bench.offered)
    assert len(bench.offers) == 1  # the same is no news
    bench.link.changed(Offered())
    assert bench.offers[-1] == Offered() and bench.link.capability.offered == Offered()


async def test_what_it_logs_is_heard_by_who_listens(bench: Bench) -> None:
    heard: list[tuple[str, str]] = []
    hear = lambda level, text: heard.append((level, text))  # noqa: E731 - a listener
    bench.link.logged("info", "unread")
    bench.link.log_listeners.add(hear)
    bench.link.logged("info", "one")
    bench.link.log_listeners.discard(hear)
    bench.link.logged("info", "unread")
    assert heard == [("info", "one")]


async def test_closed_it_is_closed_for_good(bench: Bench) -> None:
    await bench.link.connection()
    await bench.link.close()
    await bench.link.close()
    assert bench.made[0].closed == 1 and "uninstalled" in await bench.refused()
    bench.link.lost("late")
    await bench.clock.forward(DAY)
    assert bench.tries == 1


async def test_closing_ends_a_connecting_that_takes_long() -> None:
    began = asyncio.Event()

    async def connect(link: ReconnectingBackend) -> Any:
        began.set()
        await asyncio.Event().wait()

    capability = Capability(owner=LOCAL, name="mail", backend=Backend(command=("a",)), offered=Offered())
    link = ReconnectingBackend(capability, connect, lambda link: None, lambda *work: None)
    asking = asyncio.ensure_future(link.connection())
    await began.wait()
    async with asyncio.timeout(10):
        await link.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await asking
