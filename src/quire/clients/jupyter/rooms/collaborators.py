"""Keeps the agent in JupyterLab's list of online collaborators while it has documents open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pycrdt import Awareness, Doc

from quire.clients.jupyter.ports import JupyterError
from quire.clients.jupyter.rooms.presence import PRESENCE_INTERVAL_S, awareness_message, jupyter_user
from quire.clients.jupyter.rooms.protocol import RoomConnection
from quire.clients.jupyter.server.websocket import ConnectionLost

ROOM = "JupyterLab:globalAwareness"  # the room in which JupyterLab's pages tell each other which documents they show
_RETRY_S = 5.0
_LEAVE_TIMEOUT_S = 1.0

ConnectToCollaborators = Callable[[], Awaitable[RoomConnection]]
"""Connects to `ROOM`. Raises JupyterError where it is not there or cannot be reached."""


class Collaborator:
    """The agent as pages list it. `open_paths` returns the documents it has open; with none it leaves the list."""

    def __init__(self, connect: ConnectToCollaborators, agent: str, open_paths: Callable[[], list[str]]) -> None:
        self._connect = connect
        self._agent = agent
        self._open_paths = open_paths
        self._awareness = Awareness(Doc())
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def update(self) -> None:
        """Tell the pages which documents are open now."""
        self._changed.set()
        if self._task is None and self._open_paths():
            self._task = asyncio.create_task(self._stay_listed())

    async def close(self) -> None:
        """Leave the list. `open_paths` returns no document any more."""
        self._changed.set()
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=_LEAVE_TIMEOUT_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _stay_listed(self) -> None:
        try:
            while self._open_paths():
                with contextlib.suppress(ConnectionLost, JupyterError):
                    await self._stay_connected()
                await self._wait_for_change(_RETRY_S)
        finally:
            self._task = None

    async def _stay_connected(self) -> None:
        connection = await self._connect()
        reader = asyncio.create_task(_discard_messages(connection))
        try:
            while self._open_paths():
                await connection.send(self._message())
                await self._wait_for_change(PRESENCE_INTERVAL_S)
            self._awareness.set_local_state(None)
            await connection.send(awareness_message(self._awareness))
        finally:
            reader.cancel()
            await connection.close()

    async def _wait_for_change(self, timeout: float) -> None:
        if self._open_paths():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
        self._changed.clear()

    def _message(self) -> bytes:
        paths = self._open_paths()
        state: dict[str, Any] = {
            "user": jupyter_user(self._agent),
            "current": f"notebook:{paths[-1]}",
            "documents": paths,
        }
        self._awareness.set_local_state(state)
        return awareness_message(self._awareness)


async def _discard_messages(connection: RoomConnection) -> None:
    with contextlib.suppress(ConnectionLost):
        while True:
            await connection.receive()
