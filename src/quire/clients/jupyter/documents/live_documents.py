"""Shared documents that are open. Users of the same document share one replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quire.clients.jupyter.documents.live_document import LiveDocument
from quire.clients.jupyter.rooms.collaborators import Collaborator
from quire.clients.jupyter.rooms.protocol import Rooms
from quire.clients.jupyter.rooms.replica import Replica


@dataclass(eq=False)
class OpenReplica:
    replica: Replica
    users: int = 0


class LiveDocuments:
    """While a document is open, the agent is in JupyterLab's list of collaborators."""

    def __init__(self, rooms: Rooms, *, server_name: str, agent: str, timeout: float) -> None:
        """`server_name` is used in messages."""
        self._rooms = rooms
        self._server_name = server_name
        self._agent = agent
        self._timeout = timeout
        self._replicas: list[OpenReplica] = []  # no dict by path: a file may be renamed
        self._lock = asyncio.Lock()
        self._collaborator = Collaborator(
            rooms.connect_collaborators, agent, lambda: [opened.replica.path for opened in self._replicas]
        )

    async def open(self, path: str) -> LiveDocument:
        """Raises Missing or Unreachable."""
        async with self._lock:
            live = (opened for opened in self._replicas if opened.replica.path == path and not opened.replica.is_lost)
            opened = next(live, None)
            if opened is None:
                replica = Replica(
                    path, self._rooms.connect, server_name=self._server_name, agent=self._agent, timeout=self._timeout
                )
                await replica.start()
                opened = OpenReplica(replica)
                self._replicas.append(opened)
                self._collaborator.update()
            opened.users += 1

        async def release() -> None:
            async with self._lock:
                opened.users -= 1
                if opened.users == 0:
                    if opened in self._replicas:
                        self._replicas.remove(opened)
                        self._collaborator.update()
                    await opened.replica.close()

        return LiveDocument(opened.replica, release)

    async def close(self) -> None:
        async with self._lock:
            replicas, self._replicas = self._replicas, []
            await asyncio.gather(self._collaborator.close(), *(opened.replica.close() for opened in replicas))
