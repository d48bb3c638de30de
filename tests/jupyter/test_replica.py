"""A replica before a room that says what no room should: it is told, the line made again, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from pycrdt import Array, Doc, Map, Text, create_update_message

from quire.clients.jupyter.ports import JupyterError, Unreachable
from quire.clients.jupyter.rooms import protocol
from quire.clients.jupyter.rooms.protocol import RoomConnection
from quire.clients.jupyter.rooms.replica import Replica
from quire.clients.jupyter.server.websocket import ConnectionLost


class Room:
    """A room's document, and the lines to it; `spoiled` is what it says instead of the next answer."""

    def __init__(self) -> None:
        self.doc: Doc[Any] = Doc()
        self.cells = self.doc.get("cells", type=Array)
        self.cells.append(Map({"id": "a", "cell_type": "raw", "source": Text("1"), "metadata": Map({})}))
        self.spoiled: list[bytes] = []
        self.connections: list[FakeConnection] = []

    async def connect(self, path: str) -> RoomConnection:
        self.connections.append(FakeConnection(self))
        return self.connections[-1]


class FakeConnection:
    server_run = "1"

    def __init__(self, room: Room) -> None:
        self._room = room
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.messages.put_nowait(protocol.sync_request(room.doc.get_state()))

    async def send(self, message: bytes) -> None:
        match protocol.parse(message) if message[0] != protocol.RAW_MESSAGE else None:
            case protocol.SyncRequest(state=state):
                right = protocol.sync_reply(self._room.doc.get_update(state))
                self.messages.put_nowait(self._room.spoiled.pop(0) if self._room.spoiled else right)
            case protocol.Update(update=update) if update != b"\x00\x00":
                self._room.doc.apply_update(update)
            case _:
                pass

    async def receive(self) -> bytes:
        message = await self.messages.get()
        if message is None:
            raise ConnectionLost
        return message

    async def close(self) -> None:
        self.messages.put_nowait(None)


def replica(room: Room) -> Replica:
    return Replica("a.ipynb", room.connect, server_name="the server", agent="Quire", timeout=10)


@pytest.mark.parametrize("junk", [b"", b"\x00\x01\x05abc", b"\x00\x01\x03\xff\xff\xff", b"\x00\x07\x00", b"\x02\x01{"])
async def test_room_that_starts_with_an_invalid_message_is_refused(junk: bytes) -> None:
    room = Room()
    room.spoiled = [junk]
    with pytest.raises(JupyterError, match=r"a\.ipynb"):
        await replica(room).start()


async def test_invalid_room_messages_cause_a_reconnect() -> None:
    room, dice = Room(), random.Random(3)
    ours = replica(room)
    await ours.start()
    for turn in range(30):
        await ours.edit(lambda shared, turn=turn: shared.set_source("a", f"{turn}"))
        room.connections[-1].messages.put_nowait(b"\x00" + bytes([dice.randrange(3)]) + os.urandom(dice.randrange(40)))
    room.connections[-1].messages.put_nowait(create_update_message(b"\x01\xff"))
    await ours.edit(lambda shared: shared.set_source("a", "end"))
    async with asyncio.timeout(60):
        while len(room.connections) < 2 or str(room.cells[0]["source"]) != "end":
            await asyncio.sleep(0.01)
    assert len(room.cells) == 1 and ours.shared.cells()[0]["source"] == "end"
    await ours.close()


async def test_silent_room_times_out() -> None:
    room = Room()
    ours = Replica("a.ipynb", room.connect, server_name="the server", agent="Quire", timeout=0.2)
    await ours.start()
    with pytest.raises(Unreachable, match=r"0\.2 s"):
        await ours.save()  # this room never says that it saved
    await ours.close()
    with pytest.raises(JupyterError, match="closed"):
        await ours.edit(lambda shared: shared.set_source("a", "x"))
