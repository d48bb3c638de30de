"""Documents that are open: one replica for each, however many have it open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from quire.clients.jupyter.line import Dial
from quire.clients.jupyter.live_document import LiveDocument
from quire.clients.jupyter.replica import Replica


@dataclass
class Held:
    replica: Replica
    holders: int = 0


class LiveDocuments:
    """`dial` makes a line to the room of a path."""

    def __init__(self, dial: Callable[[str], Dial], *, where: str, agent: str, timeout: float) -> None:
        """`where` is what people call the server."""
        self._dial = dial
        self._where = where
        self._agent = agent
        self._timeout = timeout
        self._held: dict[str, Held] = {}
        self._turn = asyncio.Lock()

    async def open(self, path: str) -> LiveDocument:
        """Raises Missing or Unreachable."""
        async with self._turn:
            held = self._held.get(path)
            if held is None or held.replica.lost:
                replica = Replica(path, self._dial(path), where=self._where, agent=self._agent, timeout=self._timeout)
                await replica.start()
                held = self._held[path] = Held(replica)
            held.holders += 1

        async def release() -> None:
            async with self._turn:
                held.holders -= 1
                if held.holders == 0:
                    if self._held.get(path) is held:
                        del self._held[path]
                    await held.replica.close()

        return LiveDocument(held.replica, release)

    async def close(self) -> None:
        async with self._turn:
            held, self._held = list(self._held.values()), {}
            await asyncio.gather(*(each.replica.close() for each in held))
