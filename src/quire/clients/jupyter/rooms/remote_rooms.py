"""Rooms of a Jupyter server over websockets."""

from __future__ import annotations

from typing import Any

from quire.clients.jupyter.ports import Missing, Unreachable
from quire.clients.jupyter.rooms.collaborators import ROOM
from quire.clients.jupyter.rooms.protocol import RoomConnection
from quire.clients.jupyter.server.http_client import HttpClient
from quire.clients.jupyter.server.websocket import ConnectionLost, WebSocket, open_websocket

_SESSION_KEYS = ("format", "type", "fileId", "sessionId")


class RemoteRooms:
    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._has_collaboration: bool | None = None

    async def has_collaboration(self, path: str) -> bool:
        """Whether the server shares documents. The first document that is asked for decides it."""
        if self._has_collaboration is None:
            self._has_collaboration = await self._request_session(path) is not None
        return self._has_collaboration

    async def connect(self, path: str) -> RoomConnection:
        session = await self._request_session(path)
        if session is None:
            raise Missing(f"There is no {path!r} any more on the Jupyter server at {self._http.url}.")
        room = f"{session['format']}:{session['type']}:{session['fileId']}"
        socket = await open_websocket(self._http, f"api/collaboration/room/{room}", {"sessionId": session["sessionId"]})
        return RemoteRoomConnection(socket, session["sessionId"])

    async def connect_collaborators(self) -> RoomConnection:
        return RemoteRoomConnection(await open_websocket(self._http, f"api/collaboration/room/{ROOM}", {}), "")

    async def _request_session(self, path: str) -> dict[str, str] | None:
        """What names the document's room. None if the server answers 404: it has no collaboration, or no such file."""
        body = {"format": "json", "type": "notebook"}
        try:
            session: Any = await self._http.request_json(
                "PUT", f"api/collaboration/session/{path}", body=body, missing="no collaboration"
            )
        except Missing:
            return None
        if not isinstance(session, dict) or not all(isinstance(session.get(key), str) for key in _SESSION_KEYS):
            raise Unreachable(f"The Jupyter server at {self._http.url} shares documents in a way we do not know.")
        return session


class RemoteRoomConnection:
    def __init__(self, socket: WebSocket, server_run: str) -> None:
        self._socket = socket
        self.server_run = server_run

    async def send(self, message: bytes) -> None:
        await self._socket.send(message)

    async def receive(self) -> bytes:
        message = await self._socket.receive()
        if isinstance(message, str):
            raise ConnectionLost(reason="a text where bytes belong")
        return message

    async def close(self) -> None:
        await self._socket.close()
