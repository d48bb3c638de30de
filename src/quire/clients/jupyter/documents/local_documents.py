"""Documents of the Jupyter server that we are part of: shared ones where it has collaboration, else plain files."""

from __future__ import annotations

from typing import Any

from quire.clients.jupyter.documents.local_contents import InsideContents
from quire.clients.jupyter.documents.server_documents import ServerDocuments
from quire.clients.jupyter.kernels.kernelspecs import SpecsOf
from quire.clients.jupyter.ports import Document


class InsideDocuments(ServerDocuments):
    """Which of the two it is, the extensions of the server decide when the first document is opened."""

    def __init__(self, serverapp: Any, specs: SpecsOf, *, agent: str, timeout: float) -> None:
        super().__init__(InsideContents(serverapp), specs)
        self._serverapp = serverapp
        self._agent = agent
        self._timeout = timeout
        self._live: Any = None

    async def close(self) -> None:
        if self._live is not None:
            await self._live.close()

    async def _open(self, place: str) -> Document:
        extension = self._collaboration()
        if extension is None:
            return await self._plain.open(place)
        if self._live is None:
            from quire.clients.jupyter.documents.live_documents import LiveDocuments
            from quire.clients.jupyter.rooms.local_rooms import Rooms

            rooms = Rooms(extension, lambda: self._serverapp.web_app.settings["file_id_manager"])
            self._live = LiveDocuments(
                rooms.dial,
                rooms.dial_collaborators,
                where="the Jupyter server",
                agent=self._agent,
                timeout=self._timeout,
            )
        document: Document = await self._live.open(place)
        return document

    def _collaboration(self) -> Any:
        running = self._serverapp.extension_manager.extension_apps.get("jupyter_server_ydoc")
        return next(iter(running), None) if running else None
