"""Rooms of the Jupyter server that Quire runs in, joined like a page joins them but without a websocket."""

from __future__ import annotations

import asyncio
from typing import Any

from quire.clients.jupyter.documents.contents import not_found_message
from quire.clients.jupyter.ports import JupyterError, Missing
from quire.clients.jupyter.rooms import collaborators
from quire.clients.jupyter.rooms.protocol import RAW_MESSAGE, RoomConnection, encode_notice, parse_save_request
from quire.clients.jupyter.server.websocket import ConnectionLost


class LocalRooms:
    """`extension` is that of jupyter_server_ydoc. This class does for Quire what the extension's websocket handler does
    for a page: it keeps a room while it has clients, and removes it some time after the last one left."""

    def __init__(self, extension: Any, files: Any) -> None:
        self._extension = extension
        self._files = files  # returns the manager of file ids

    async def connect(self, path: str) -> RoomConnection:
        file_id = self._files().index(path)
        if file_id is None:
            raise Missing(not_found_message(path, "this Jupyter server"))
        name = f"json:notebook:{file_id}"
        room = await self._room(name, path)
        channel = RoomChannel(name)
        return LocalRoomConnection(room, channel, asyncio.create_task(self._serve(name, room, channel)))

    async def connect_collaborators(self) -> RoomConnection:
        """Join the room with the list of collaborators. The first page creates it."""
        room = self._extension.ywebsocket_server.rooms.get(collaborators.ROOM)
        if room is None:
            raise Missing("No page of JupyterLab is open.")
        channel = RoomChannel(collaborators.ROOM)
        return LocalRoomConnection(room, channel, asyncio.create_task(self._serve_collaborators(channel)))

    async def _serve_collaborators(self, channel: RoomChannel) -> None:
        try:
            await self._extension.ywebsocket_server.serve(channel)
        finally:
            channel.close()

    async def _room(self, name: str, path: str) -> Any:
        server = self._extension.ywebsocket_server
        cancel_removal(server.rooms.get(name))
        try:
            await self._extension.get_document(room_id=name, copy=False, create=True)
        except Exception as error:  # the contents manager and nbformat raise many types
            await self._discard_unready(name)
            raise JupyterError(f"This Jupyter server cannot share {path!r}: {error}") from None
        room = server.rooms[name]
        cancel_removal(room)
        return room

    async def _discard_unready(self, name: str) -> None:
        """Remove a room that could not be loaded: the next client would get an empty document."""
        async with self._extension._room_locks[name]:
            rooms = self._extension.ywebsocket_server.rooms
            if name in rooms and not rooms[name].ready and not rooms[name].clients:
                del rooms[name]

    async def _serve(self, name: str, room: Any, channel: RoomChannel) -> None:
        try:
            await self._extension.ywebsocket_server.serve(channel)
        finally:
            channel.close()
            if not room.clients and self._extension.ywebsocket_server.rooms.get(name) is room:
                room.cleaner = asyncio.get_running_loop().create_task(self._remove_when_empty(name, room))

    async def _remove_when_empty(self, name: str, room: Any) -> None:
        delay = self._extension.document_cleanup_delay
        if delay is None:
            return
        await asyncio.sleep(delay)
        async with self._extension._room_locks[name]:
            if room.clients or self._extension.ywebsocket_server.rooms.get(name) is not room:
                return
            await self._extension.ywebsocket_server.delete_room(room=room)
            loaders, file_id = self._extension.file_loaders, name.split(":", 2)[2]
            if file_id in loaders and loaders[file_id].number_of_subscriptions == 0:
                await loaders.remove(file_id)


def cancel_removal(room: Any) -> None:
    """Cancel the scheduled removal of a room."""
    if room is not None and room.cleaner is not None:
        room.cleaner.cancel()


class RoomChannel:
    """The room's end of the connection, with the interface of a pycrdt channel."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.to_client: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.to_room: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: bytes) -> None:
        self.to_client.put_nowait(message)

    async def recv(self) -> bytes:
        return await self.__anext__()

    def __aiter__(self) -> RoomChannel:
        return self

    async def __anext__(self) -> bytes:
        message = await self.to_room.get()
        if message is None:
            raise StopAsyncIteration
        return message

    def close(self) -> None:
        self.to_room.put_nowait(None)
        self.to_client.put_nowait(None)


class LocalRoomConnection:
    """Quire's end of the connection. It also handles save requests, as a page's websocket handler does."""

    server_run = "this one"

    def __init__(self, room: Any, channel: RoomChannel, serving: asyncio.Task[None]) -> None:
        self._room = room
        self._channel = channel
        self._serving = serving
        self._saves: set[asyncio.Task[None]] = set()

    async def send(self, message: bytes) -> None:
        if self._serving.done():
            raise ConnectionLost(reason="the room is gone")
        if message[0] == RAW_MESSAGE:
            save = asyncio.create_task(self._save(parse_save_request(message)))
            self._saves.add(save)
            save.add_done_callback(self._saves.discard)
        else:
            self._channel.to_room.put_nowait(message)

    async def receive(self) -> bytes:
        message = await self._channel.to_client.get()
        if message is None:
            raise ConnectionLost(reason="the room is gone")
        return message

    async def close(self) -> None:
        self._channel.close()
        await asyncio.wait([self._serving], timeout=5.0)

    async def _save(self, number: int) -> None:
        status = "skipped"
        try:
            save = self._room._save_to_disc()
            if save is not None:
                await save
                status = "success"
        except Exception:
            status = "failed"
        self._channel.to_client.put_nowait(encode_notice({"type": "save", "responseTo": number, "status": status}))
