"""The part of the port NotebookStore that concerns cells, for cells that are in documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.ports import CellChanged, NbCell
from quire.core.errors import InvalidRequest, NotFound, VersionConflict
from quire.core.model import Blob, Cell, CellId, Data, Edit, NewCell, NotebookId, Output
from quire.core.ports.store import Blobs
from quire.notebook_format import ipynb
from quire.stores import refusals
from quire.stores.documents import JupyterDocuments


class DocumentCells:
    def __init__(self, documents: JupyterDocuments, blobs: Blobs, *, trust_outputs: bool) -> None:
        """With `trust_outputs` JupyterLab trusts the outputs of cells that are inserted here."""
        self._documents = documents
        self._blobs = blobs
        self._trust_outputs = trust_outputs

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None:
        async with self._documents.open(notebook) as (log, document):
            for number, source in enumerate(document.cells()):
                if which in (number, source.get("id")):
                    return log.to_cell(number, source, document.version(source["id"]))
        return None

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]:
        async with self._documents.open(notebook) as (log, document):
            page = list(enumerate(document.cells()))[start : None if limit is None else start + limit]
            return [log.to_cell(number, source, document.version(source["id"])) for number, source in page]

    async def get_cell(self, notebook: NotebookId, cell: CellId) -> Cell:
        """Raises NotFound."""
        found = await self.find_cell(notebook, cell)
        if found is None:
            raise NotFound(refusals.cell_gone(cell))
        return found

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        async with self._documents.open(notebook) as (log, document):
            count = len(document.cells())
            if count + len(cells) > limit:
                raise refusals.too_many_cells(count, limit)
            if at is not None and not 0 <= at <= count:
                raise InvalidRequest(refusals.no_such_place(at, count))
            new = [await self._to_document(cell) for cell in cells]
            ids = await document.insert(count if at is None else at, new)
            self._documents.save_soon(log)
            sources = {source["id"]: (number, source) for number, source in enumerate(document.cells())}
            return [log.to_cell(*sources[id_], document.version(id_)) for id_ in ids if id_ in sources]

    async def _to_document(self, new: NewCell) -> NbCell:
        attachments = {name: await _load_bundle(self._blobs, bundle) for name, bundle in new.attachments.items()}
        run = new.run and replace(new.run, outputs=tuple(await load_outputs(self._blobs, new.run.outputs)))
        cell = replace(new, attachments=attachments).to_cell(new.id or CellId(uuid4().hex[:12]), 0, run)
        source = ipynb.as_cell(cell)
        is_trusted = self._trust_outputs and source["cell_type"] == "code"
        return {**source, "metadata": _with_trust(source["metadata"], is_trusted)}

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        before = await self.get_cell(notebook, cell)
        refusals.check_version(before, expected)
        async with self._documents.open(notebook) as (log, document):
            metadata = None
            if edit.metadata is not None:
                now: dict[str, Any] = next((one["metadata"] for one in document.cells() if one["id"] == cell), {})
                metadata = _with_trust(edit.of(before).metadata, now.get("trusted") is True)
            kind = edit.kind.value if edit.kind is not None else None
            try:
                await document.change(cell, source=edit.source, kind=kind, metadata=metadata, expected=expected)
            except CellChanged as error:
                source, version = str(error.cell.get("source", "")), document.version(cell)
                message = refusals.edited_meanwhile(before.number, version, expected or 0, source)
                raise VersionConflict(message) from error
            self._documents.save_soon(log)
        return await self.get_cell(notebook, cell)

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell:
        async with self._documents.open(notebook) as (log, document):
            last = len(document.cells()) - 1
            if not 0 <= to <= last:
                raise InvalidRequest(refusals.no_such_place(to, last))
            await document.move(cell, to)
            self._documents.save_soon(log)
        return await self.get_cell(notebook, cell)

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None:
        async with self._documents.open(notebook) as (log, document):
            await document.delete(cell)
            self._documents.save_soon(log)

    async def clear_notebook(self, notebook: NotebookId) -> None:
        async with self._documents.open(notebook) as (log, document):
            for cell in document.cells():
                await document.delete(cell["id"])
            log.runs.clear()
            self._documents.save_soon(log)


def _with_trust(metadata: dict[str, Any], trusted: bool) -> dict[str, Any]:
    """Return cell metadata with JupyterLab's mark of trust. A caller cannot set the mark."""
    rest = {key: value for key, value in metadata.items() if key != "trusted"}
    return {**rest, "trusted": True} if trusted else rest


async def load_outputs(blobs: Blobs, outputs: Sequence[Output]) -> list[Output]:
    """Return outputs with the bytes of their blobs."""
    return [replace(output, bundle=await _load_bundle(blobs, output.bundle)) for output in outputs]


async def _load_bundle(blobs: Blobs, bundle: dict[str, Data]) -> dict[str, Data]:
    loaded: dict[str, Data] = {}
    for mime, data in bundle.items():
        if isinstance(data, Blob):
            content = await blobs.get(data)
            loaded[mime] = content.decode("utf-8") if data.text else content
        else:
            loaded[mime] = data
    return loaded
