"""The open documents of one server. Each is opened once and saved soon after a change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict

from quire.clients.jupyter.ports import Document, Documents, JupyterError, SpecInfo

log = logging.getLogger(__name__)


class OpenDocuments:
    """Open documents by their path on the server."""

    def __init__(self, server_name: str, documents: Documents) -> None:
        self._server_name = server_name
        self._documents = documents
        self._open: dict[str, Document] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}  # saves that have begun
        self._save_errors: dict[str, str] = {}  # why the last save of a document failed

    def find(self, path: str) -> Document | None:
        return self._open.get(path)

    async def open(self, path: str) -> Document:
        """The document stays open until `close`."""
        async with self._opening[path]:
            document = self._open.get(path)
            if document is None:
                document = self._open[path] = await self._documents.open(path)
            return document

    async def create(self, path: str, spec: SpecInfo | None) -> Document:
        async with self._opening[path]:
            document = self._open[path] = await self._documents.create(path, spec or "")
            return document

    def rename(self, path: str, new_path: str) -> None:
        """The file of an open document was renamed."""
        document = self._open.get(path)
        if document is None or document.path != new_path:
            return  # already renamed
        del self._open[path]
        self._open.setdefault(new_path, document)
        if path in self._save_errors:
            self._save_errors[new_path] = self._save_errors.pop(path)
        if path in self._saving:
            self.save_soon(new_path)

    def save_soon(self, path: str) -> None:
        """Save an open document in the background."""
        if path in self._open and path not in self._saving:
            self._saving[path] = asyncio.create_task(self._save(path))

    async def _save(self, path: str) -> None:
        await asyncio.sleep(0)  # changes of the same moment are saved together
        task = self._saving.pop(path, None)
        if task is not None:
            self._writing[path] = task
        try:
            await self.save(path)
        except JupyterError as error:
            log.warning("saving %s on the Jupyter server %r: %s", path, self._server_name, error)
        finally:
            if self._writing.get(path) is task:
                del self._writing[path]

    async def save(self, path: str) -> None:
        """Return when an open document is in its file. An error is remembered until a save succeeds."""
        document = self._open.get(path)
        if document is None:
            return
        try:
            await document.save()
        except JupyterError as error:
            self._save_errors[path] = str(error)
            raise
        self._save_errors.pop(path, None)

    def retry_failed_save(self, path: str) -> str:
        """Why the last save of an open document failed, and save again; "" if it did not fail."""
        error = self._save_errors.get(path, "")
        if error and path not in self._writing:
            self.save_soon(path)
        return error

    async def close(self, path: str) -> None:
        """Save a document and close it."""
        try:
            await self.save(path)
        except JupyterError as error:
            log.warning(
                "the last changes of %s on the Jupyter server %r are not saved: %s", path, self._server_name, error
            )
        self._save_errors.pop(path, None)
        document = self._open.pop(path, None)
        if document is not None:
            with contextlib.suppress(JupyterError):
                await document.close()

    async def close_all(self) -> None:
        await asyncio.gather(*(self.close(path) for path in list(self._open)), return_exceptions=True)
