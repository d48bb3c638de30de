"""Documents of one Jupyter server, opened as shared documents or as plain files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from quire.clients.jupyter.documents import contents
from quire.clients.jupyter.documents.contents import Contents
from quire.clients.jupyter.documents.file_documents import FileDocuments
from quire.clients.jupyter.kernels.models import ListSpecs, find_spec
from quire.clients.jupyter.ports import Document, Entry, SpecInfo
from quire.clients.jupyter.server.paths import normalize_path

if TYPE_CHECKING:  # pycrdt is installed only where documents are shared
    from quire.clients.jupyter.documents.live_documents import LiveDocuments

FindShared = Callable[[str], Awaitable["LiveDocuments | None"]]
"""The server's shared documents; None without jupyter-collaboration. Takes the path of a document on the server."""


class ServerDocuments:
    """`find_shared` decides whether a document is opened as a shared one."""

    def __init__(self, server_contents: Contents, list_specs: ListSpecs, find_shared: FindShared) -> None:
        self._contents = server_contents
        self._list_specs = list_specs
        self._find_shared = find_shared
        self._files = FileDocuments(server_contents)

    async def open(self, path: str) -> Document:
        server_path = normalize_path(path)
        await contents.check_notebook(self._contents, server_path)
        return await self._open(server_path)

    async def _open(self, path: str) -> Document:
        shared = await self._find_shared(path)
        return await (shared.open(path) if shared is not None else self._files.open(path))

    async def create(self, path: str, kernel: str | SpecInfo = "") -> Document:
        spec = await find_spec(self._list_specs, kernel) if isinstance(kernel, str) else kernel
        server_path = await contents.create_notebook(self._contents, path, spec)
        document = await self._open(server_path)
        for cell in document.cells():  # a room adds an empty cell to an empty notebook
            await document.delete(cell["id"])
        return document

    async def list_folder(self, path: str = "") -> list[Entry]:
        return await contents.list_folder(self._contents, path)
