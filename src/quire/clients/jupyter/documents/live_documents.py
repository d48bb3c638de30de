"""Documents that are open: one replica for each, however many have it open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quire.clients.jupyter.documents.live_document import LiveDocument
from quire.clients.jupyter.rooms.collaborators import Collaborator, DialRoom
from quire.clients.jupyter.rooms.protocol import Dial
from quire.clients.jupyter.rooms.replica import Replica


@dataclass(eq=False)
class Held:
    replica: Replica
    holders: int = 0


class LiveDocuments:
    """`dial` makes a line to the room of a path, `dial_collaborators` to the room of the list of collaborators."""

    def __init__(self, dial: Dial, dial_collaborators: DialRoom, *, where: str, agent: str, timeout: float) -> None:
        """`where` is what people call the server."""
        self._dial = dial
        self._where = where
        self._agent = agent
        self._timeout = timeout
        self._held: list[Held] = []  # a person may rename the file of one
        self._turn = asyncio.Lock()
        self._collaborator = Collaborator(dial_collaborators, agent, lambda: [held.replica.path for held in self._held])

    async def open(self, path: str) -> LiveDocument:
        """Raises Missing or Unreachable."""
        async with self._turn:
            held = next((each for each in self._held if each.replica.path == path and not each.replica.lost), None)
            if held is None:
                replica = Replica(path, self._dial, where=self._where, agent=self._agent, timeout=self._timeout)
                await replica.start()
                held = Held(replica)
                self._held.append(held)
                self._collaborator.update()
            held.holders += 1

        async def release() -> None:
            async with self._turn:
                held.holders -= 1
                if held.holders == 0:
                    if held in self._held:
                        self._held.remove(held)
                        self._collaborator.update()
                    await held.replica.close()

        return LiveDocument(held.replica, release)

    async def close(self) -> None:
        async with self._turn:
            held, self._held = self._held, []
            await asyncio.gather(self._collaborator.close(), *(each.replica.close() for each in held))
