"""Documents of one Jupyter server, however it is reached: found and made by its contents, then opened."""

from __future__ import annotations

from quire.clients.jupyter.documents import contents
from quire.clients.jupyter.documents.contents import Contents
from quire.clients.jupyter.documents.file_documents import PlainDocuments
from quire.clients.jupyter.kernels.kernelspecs import SpecsOf, spec_for
from quire.clients.jupyter.ports import Document, Entry, SpecInfo
from quire.clients.jupyter.server.paths import below_root


class ServerDocuments:
    """How a document is opened is for those who inherit this."""

    def __init__(self, found: Contents, specs: SpecsOf) -> None:
        self._contents = found
        self._specs = specs
        self._plain = PlainDocuments(found)

    async def _open(self, place: str) -> Document:
        """One that is there, at a path that `below_root` gave."""
        raise NotImplementedError

    async def open(self, path: str) -> Document:
        place = below_root(path)
        await contents.notebook(self._contents, place)
        return await self._open(place)

    async def create(self, path: str, kernel: str | SpecInfo = "") -> Document:
        spec = await spec_for(self._specs, kernel) if isinstance(kernel, str) else kernel
        place = await contents.new_notebook(self._contents, path, spec)
        document = await self._open(place)
        for cell in document.cells():  # the room gives an empty notebook an empty cell
            await document.delete(cell["id"])
        return document

    async def listing(self, path: str = "") -> list[Entry]:
        return await contents.listing(self._contents, path)
