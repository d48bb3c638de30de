"""Keeps the agent in JupyterLab's list of online collaborators while it has documents open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pycrdt import Awareness, Doc

from quire.clients.jupyter.ports import JupyterError
from quire.clients.jupyter.rooms.presence import EVERY, awareness_message, user
from quire.clients.jupyter.rooms.protocol import Line
from quire.clients.jupyter.server.websocket import Cut

ROOM = "JupyterLab:globalAwareness"  # the room in which JupyterLab's pages tell each other which documents they show
_RETRY_S = 5.0
_FAREWELL_S = 1.0

DialRoom = Callable[[], Awaitable[Line]]
"""Connects to `ROOM`. Raises JupyterError where it is not there or cannot be reached."""


class Collaborator:
    """The agent as pages list it. `open_paths` returns the documents it has open; with none it leaves the list."""

    def __init__(self, dial: DialRoom, agent: str, open_paths: Callable[[], list[str]]) -> None:
        self._dial = dial
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
            await asyncio.wait([task], timeout=_FAREWELL_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _stay_listed(self) -> None:
        try:
            while self._open_paths():
                with contextlib.suppress(Cut, JupyterError):
                    await self._attend()
                await self._wait_for_change(_RETRY_S)
        finally:
            self._task = None

    async def _attend(self) -> None:
        line = await self._dial()
        reader = asyncio.create_task(_discard_messages(line))
        try:
            while self._open_paths():
                await line.send(self._message())
                await self._wait_for_change(EVERY)
            self._awareness.set_local_state(None)
            await line.send(awareness_message(self._awareness))
        finally:
            reader.cancel()
            await line.close()

    async def _wait_for_change(self, timeout: float) -> None:
        if self._open_paths():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
        self._changed.clear()

    def _message(self) -> bytes:
        paths = self._open_paths()
        state: dict[str, Any] = {
            "user": user(self._agent),
            "current": f"notebook:{paths[-1]}",
            "documents": paths,
        }
        self._awareness.set_local_state(state)
        return awareness_message(self._awareness)


async def _discard_messages(line: Line) -> None:
    with contextlib.suppress(Cut):
        while True:
            await line.receive()
