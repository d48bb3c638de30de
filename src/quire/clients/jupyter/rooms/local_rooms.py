"""Rooms of the Jupyter server that we are part of: a seat in one, as a page has it, without a websocket."""

from __future__ import annotations

import asyncio
from typing import Any

from quire.clients.jupyter.documents.contents import not_there
from quire.clients.jupyter.ports import JupyterError, Missing
from quire.clients.jupyter.rooms import collaborators
from quire.clients.jupyter.rooms.protocol import RAW, Line, noted_message, save_number
from quire.clients.jupyter.server.websocket import Cut


class Rooms:
    """`extension` is jupyter_server_ydoc's. What it does for a page that comes and goes, this does for us: a room is
    kept while somebody is in it, and taken away some time after the last one left."""

    def __init__(self, extension: Any, files: Any) -> None:
        self._extension = extension
        self._files = files  # gives the id of a file

    async def dial(self, path: str) -> Line:
        file = self._files().index(path)
        if file is None:
            raise Missing(not_there(path, "this Jupyter server"))
        name = f"json:notebook:{file}"
        room = await self._room(name, path)
        seat = Seat(name)
        return SeatLine(room, seat, asyncio.create_task(self._sit(name, room, seat)))

    async def dial_collaborators(self) -> Line:
        """A seat in the room of the list of collaborators, which the first page makes."""
        room = self._extension.ywebsocket_server.rooms.get(collaborators.ROOM)
        if room is None:
            raise Missing("No page of JupyterLab is open.")
        seat = Seat(collaborators.ROOM)
        return SeatLine(room, seat, asyncio.create_task(self._attend(seat)))

    async def _attend(self, seat: Seat) -> None:
        try:
            await self._extension.ywebsocket_server.serve(seat)
        finally:
            seat.leave()

    async def _room(self, name: str, path: str) -> Any:
        server = self._extension.ywebsocket_server
        stay(server.rooms.get(name))
        try:
            await self._extension.get_document(room_id=name, copy=False, create=True)
        except Exception as error:  # whatever the contents manager or nbformat raise
            await self._drop(name)
            raise JupyterError(f"This Jupyter server cannot share {path!r}: {error}") from None
        room = server.rooms[name]
        stay(room)
        return room

    async def _drop(self, name: str) -> None:
        """One that could not be begun: left among the rooms, it would be an empty document to whoever comes next."""
        async with self._extension._room_locks[name]:
            rooms = self._extension.ywebsocket_server.rooms
            if name in rooms and not rooms[name].ready and not rooms[name].clients:
                del rooms[name]

    async def _sit(self, name: str, room: Any, seat: Seat) -> None:
        try:
            await self._extension.ywebsocket_server.serve(seat)
        finally:
            seat.leave()
            if not room.clients and self._extension.ywebsocket_server.rooms.get(name) is room:
                room.cleaner = asyncio.get_running_loop().create_task(self._clean(name, room))

    async def _clean(self, name: str, room: Any) -> None:
        delay = self._extension.document_cleanup_delay
        if delay is None:
            return
        await asyncio.sleep(delay)
        async with self._extension._room_locks[name]:
            if room.clients or self._extension.ywebsocket_server.rooms.get(name) is not room:
                return
            await self._extension.ywebsocket_server.delete_room(room=room)
            loaders, file = self._extension.file_loaders, name.split(":", 2)[2]
            if file in loaders and loaders[file].number_of_subscriptions == 0:
                await loaders.remove(file)


def stay(room: Any) -> None:
    """Call off that it is taken away."""
    if room is not None and room.cleaner is not None:
        room.cleaner.cancel()


class Seat:
    """The room's side: a channel as pycrdt wants it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.to_us: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.to_room: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: bytes) -> None:
        self.to_us.put_nowait(message)

    async def recv(self) -> bytes:
        return await self.__anext__()

    def __aiter__(self) -> Seat:
        return self

    async def __anext__(self) -> bytes:
        message = await self.to_room.get()
        if message is None:
            raise StopAsyncIteration
        return message

    def leave(self) -> None:
        self.to_room.put_nowait(None)
        self.to_us.put_nowait(None)


class SeatLine:
    """Our side: a line. What a page's websocket handler does itself, saving, is done here."""

    run = "this one"

    def __init__(self, room: Any, seat: Seat, sitting: asyncio.Task[None]) -> None:
        self._room = room
        self._seat = seat
        self._sitting = sitting
        self._saves: set[asyncio.Task[None]] = set()

    async def send(self, message: bytes) -> None:
        if self._sitting.done():
            raise Cut(why="the room is gone")
        if message[0] == RAW:
            save = asyncio.create_task(self._save(save_number(message)))
            self._saves.add(save)
            save.add_done_callback(self._saves.discard)
        else:
            self._seat.to_room.put_nowait(message)

    async def receive(self) -> bytes:
        message = await self._seat.to_us.get()
        if message is None:
            raise Cut(why="the room is gone")
        return message

    async def close(self) -> None:
        self._seat.leave()
        await asyncio.wait([self._sitting], timeout=5.0)

    async def _save(self, number: int) -> None:
        status = "skipped"
        try:
            under_way = self._room._save_to_disc()
            if under_way is not None:
                await under_way
                status = "success"
        except Exception:
            status = "failed"
        self._seat.to_us.put_nowait(noted_message({"type": "save", "responseTo": number, "status": status}))
