"""Tests that share restarts: each uses notebooks of its own, and one server is killed and started again for all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from fastmcp import Client

from tests.support.notebooks import Book, made

Playing = AsyncGenerator[None, Book]
Scenario = Callable[[Book, Path], Playing]


class Restarts:
    """The scenarios of a module. Each is an async generator that takes a notebook and the data directory. Where it
    yields, the server is killed and another is started, and it goes on with its notebook there."""

    def __init__(self) -> None:
        self._scenarios: dict[str, Scenario] = {}
        self._errors: dict[str, Exception] | None = None

    def scenario(self, scenario: Scenario) -> Callable[[Restarts], Awaitable[None]]:
        """The test of a scenario. It needs a fixture `restarted`: this object after `play`."""
        name = scenario.__name__
        self._scenarios[name] = scenario

        async def test(restarted: Restarts) -> None:
            assert restarted._errors is not None
            if name in restarted._errors:
                raise restarted._errors[name]

        test.__name__ = test.__qualname__ = name
        return test

    async def play(self, folder: Path, start: Callable[[Path], AbstractAsyncContextManager[Client[Any]]]) -> None:
        """Play every scenario to its end. `start` gives a client of a server that is killed when the block ends."""
        self._errors = {}
        playing: dict[str, Playing] = {}
        async with start(folder) as client:
            for number, (name, scenario) in enumerate(self._scenarios.items()):
                playing[name] = scenario(await made(client, f"scenario {number}"), folder)
            await self._go_on(playing, None)
        while playing:
            async with start(folder) as client:
                await self._go_on(playing, client)

    async def _go_on(self, playing: dict[str, Playing], client: Client[Any] | None) -> None:
        """Play all of them up to their next restart; without a client, up to the first."""
        assert self._errors is not None
        for number, name in enumerate(self._scenarios):
            if name in playing:
                try:
                    book = Book(client=client, name=f"scenario {number}") if client is not None else None
                    await playing[name].asend(book)  # type: ignore[arg-type]  # the first takes None
                except StopAsyncIteration:
                    del playing[name]
                except Exception as error:
                    self._errors[name] = error
                    del playing[name]
