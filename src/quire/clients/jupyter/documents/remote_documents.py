"""Documents of a Jupyter server from outside: shared ones where it has collaboration, else plain files."""

from __future__ import annotations

from typing import Any

from quire.clients.jupyter.documents.contents import RemoteContents
from quire.clients.jupyter.documents.live_documents import LiveDocuments
from quire.clients.jupyter.documents.server_documents import ServerDocuments
from quire.clients.jupyter.kernels.kernelspecs import SpecsOf
from quire.clients.jupyter.ports import Document, Missing, Unreachable
from quire.clients.jupyter.rooms import collaborators
from quire.clients.jupyter.rooms.protocol import Line
from quire.clients.jupyter.server.http_client import Server
from quire.clients.jupyter.server.websocket import Cut, Socket, open_socket


class RemoteDocuments(ServerDocuments):
    """Which of the two it is, the first document decides."""

    def __init__(self, server: Server, specs: SpecsOf, *, agent: str) -> None:
        super().__init__(RemoteContents(server), specs)
        self._server = server
        self._live = LiveDocuments(
            self._dial, self._dial_collaborators, where=server.url, agent=agent, timeout=server.timeout
        )
        self._collaborates: bool | None = None

    async def close(self) -> None:
        await self._live.close()

    async def collaborates(self, path: str = "") -> bool:
        if self._collaborates is None:
            self._collaborates = await self._session(path) is not None
        return self._collaborates

    async def _open(self, place: str) -> Document:
        if await self.collaborates(place):
            return await self._live.open(place)
        return await self._plain.open(place)

    async def _dial(self, path: str) -> Line:
        session = await self._session(path)
        if session is None:
            raise Missing(f"There is no {path!r} any more on the Jupyter server at {self._server.url}.")
        room = f"{session['format']}:{session['type']}:{session['fileId']}"
        socket = await open_socket(self._server, f"api/collaboration/room/{room}", {"sessionId": session["sessionId"]})
        return BinaryLine(socket, session["sessionId"])

    async def _dial_collaborators(self) -> Line:
        return BinaryLine(await open_socket(self._server, f"api/collaboration/room/{collaborators.ROOM}", {}), "")

    async def _session(self, path: str) -> dict[str, str] | None:
        """The room's name; None where the server answers 404: no collaboration, or no such file any more."""
        body = {"format": "json", "type": "notebook"}
        try:
            session: Any = await self._server.ask(
                "PUT", f"api/collaboration/session/{path}", body=body, missing="no collaboration"
            )
        except Missing:
            return None
        wanted = ("format", "type", "fileId", "sessionId")
        if not isinstance(session, dict) or not all(isinstance(session.get(key), str) for key in wanted):
            raise Unreachable(f"The Jupyter server at {self._server.url} shares documents in a way we do not know.")
        return session


class BinaryLine:
    """A line over a websocket."""

    def __init__(self, socket: Socket, run: str) -> None:
        self._socket = socket
        self.run = run

    async def send(self, message: bytes) -> None:
        await self._socket.send(message)

    async def receive(self) -> bytes:
        message = await self._socket.receive()
        if isinstance(message, str):
            raise Cut(why="a text where bytes belong")
        return message

    async def close(self) -> None:
        await self._socket.close()
