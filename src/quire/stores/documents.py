"""Notebooks whose cells are documents on Jupyter servers: which there are, where they are, and how they are opened."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from quire.clients.jupyter.ports import Document, JupyterError, Missing, Unreachable
from quire.clients.jupyter.server.registry import ServerRegistry
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import Notebook, NotebookId
from quire.stores.document_run_log import DocumentRunLog

_RETRY_PAUSE_S = 2.0  # after a server did not answer


class JupyterDocuments:
    def __init__(self, servers: ServerRegistry, on_change: Callable[[Notebook], None]) -> None:
        """`on_change` is called when another program changes a document. It returns at once."""
        self._servers = servers
        self._on_change = on_change
        self._logs: dict[NotebookId, DocumentRunLog] = {}
        self._unreachable: dict[str, tuple[float, Unreachable]] = {}  # by server: until when, and the error

    def __contains__(self, notebook: NotebookId) -> bool:
        return notebook in self._logs

    def log(self, notebook: NotebookId) -> DocumentRunLog:
        return self._logs[notebook]

    def describe(self, notebook: Notebook) -> Notebook:
        """Return the notebook with what is known of its document without a request."""
        log = self._log_for(notebook)
        if log is None:
            return notebook
        try:
            document = self._servers.get(log.location.server).open_documents.find(log.location.path)
        except Missing:
            document = None
        if document is None:
            return replace(notebook, cells=log.cell_count, runs=log.max_count, document=log.location)
        cells = document.cells()
        log.cell_count, counts = len(cells), [cell.get("execution_count") for cell in cells]
        log.max_count = max((log.max_count, *(count for count in counts if isinstance(count, int))))
        metadata = {**notebook.metadata, **document.metadata()}
        return replace(notebook, cells=log.cell_count, runs=log.max_count, metadata=metadata, document=log.location)

    async def refresh(self, notebook: Notebook) -> Notebook:
        """Open its document, then describe it. If that fails, a later use of its cells raises the error."""
        log = self._log_for(notebook)
        if log is not None:
            with contextlib.suppress(JupyterError):
                await self._document(log)
        return self.describe(notebook)

    def _log_for(self, notebook: Notebook) -> DocumentRunLog | None:
        if notebook.document is None:
            return None
        log = self._logs.get(notebook.id)
        if log is None or notebook.document not in (log.location, *log.old_locations):
            log = self._logs[notebook.id] = DocumentRunLog(notebook, notebook.document)
        return log

    async def forget(self, notebook: NotebookId) -> None:
        """Close its document, which stays on its server."""
        log = self._logs.pop(notebook, None)
        if log is not None:
            with contextlib.suppress(Missing):
                await self._servers.get(log.location.server).open_documents.close(log.location.path)

    @asynccontextmanager
    async def open(self, notebook: NotebookId) -> AsyncIterator[tuple[DocumentRunLog, Document]]:
        """Open its document. Raises errors of its server as NotFound, OperationFailed or InvalidRequest."""
        log = self._logs[notebook]
        try:
            yield log, await self._document(log)
        except Missing as error:
            raise NotFound(str(error)) from error
        except Unreachable as error:
            raise OperationFailed(str(error)) from error
        except JupyterError as error:
            raise InvalidRequest(str(error)) from error

    async def _document(self, log: DocumentRunLog) -> Document:
        server = self._servers.get(log.location.server)
        document = server.open_documents.find(log.location.path)
        if document is None:
            until, error = self._unreachable.get(server.name, (0.0, None))
            if error is not None and time.monotonic() < until:
                raise error
            try:
                document = await server.open_documents.open(log.location.path)
            except Unreachable as unreachable:
                self._unreachable[server.name] = time.monotonic() + _RETRY_PAUSE_S, unreachable
                raise
            log.is_watched = False
        if not log.is_watched:
            log.is_watched = True
            document.watch(lambda: self._note_change(log, document))
        return document

    def _note_change(self, log: DocumentRunLog, document: Document) -> None:
        """Another program changed the document or renamed its file."""
        if document.path != log.location.path:
            log.old_locations.append(log.location)
            log.location = replace(log.location, path=document.path)
            with contextlib.suppress(Missing):
                self._servers.get(log.location.server).open_documents.rename(log.old_locations[-1].path, document.path)
        self._on_change(log.notebook)

    def list_renamed(self) -> list[Notebook]:
        """Return the notebooks whose documents were renamed, with the new paths."""
        return [replace(log.notebook, document=log.location) for log in self._logs.values() if log.old_locations]

    def save_soon(self, log: DocumentRunLog) -> None:
        self._servers.get(log.location.server).open_documents.save_soon(log.location.path)
