"""Stored outputs: short text stays in the store; long text and bytes are blobs."""

from __future__ import annotations

from dataclasses import replace

import anyio

from quire.core.errors import NotFound, QuireError
from quire.core.model import Blob, Cell, Data, NewCell, Output
from quire.core.notebooks.images import FORMATS, PREVIEW, Image
from quire.core.phrases import count
from quire.core.ports.store import Blobs

_MAX_INLINE_CHARS = 32_000  # of a text in the store
_MAX_PARALLEL_CELLS = 8  # whose bytes are written at once


class Outputs:
    """Writes bytes of outputs and attachments to blobs, and reads them."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def store(self, output: Output) -> Output:
        return replace(output, bundle=await self._store_bundle(output.bundle))

    async def store_cells(self, cells: list[NewCell]) -> list[NewCell]:
        """Store the bytes of several cells. Cells are written in parallel, since each waits for the disk."""
        stored = list(cells)
        failures: list[QuireError] = []
        limiter = anyio.Semaphore(_MAX_PARALLEL_CELLS)

        async def store_one(place: int) -> None:
            async with limiter:
                try:
                    stored[place] = await self._store_cell(cells[place])
                except QuireError as error:
                    failures.append(error)

        async with anyio.create_task_group() as group:
            for place, cell in enumerate(cells):
                if cell.attachments or cell.run is not None:
                    group.start_soon(store_one, place)
        if failures:
            raise failures[0]
        return stored

    async def _store_cell(self, cell: NewCell) -> NewCell:
        attachments = {name: await self._store_bundle(bundle) for name, bundle in cell.attachments.items()}
        run = cell.run
        if run is not None:
            run = replace(run, outputs=tuple([await self.store(output) for output in run.outputs]))
        return replace(cell, attachments=attachments, run=run)

    async def _store_bundle(self, bundle: dict[str, Data]) -> dict[str, Data]:
        stored: dict[str, Data] = {}
        for mime, data in bundle.items():
            if isinstance(data, bytes):
                stored[mime] = await self._blobs.put(data)
            elif isinstance(data, str) and len(data) > _MAX_INLINE_CHARS:
                stored[mime] = replace(await self._blobs.put(data.encode("utf-8")), text=True)
            else:
                stored[mime] = data
        return stored

    async def load(self, cell: Cell) -> Cell:
        """The cell with the bytes of its outputs and attachments in place of blobs."""
        if cell.attachments:
            attachments = {name: await self._load_bundle(bundle) for name, bundle in cell.attachments.items()}
            cell = replace(cell, attachments=attachments)
        if cell.run is None:
            return cell
        outputs = [replace(output, bundle=await self._load_bundle(output.bundle)) for output in cell.outputs]
        return replace(cell, run=replace(cell.run, outputs=tuple(outputs)))

    async def _load_bundle(self, bundle: dict[str, Data]) -> dict[str, Data]:
        loaded: dict[str, Data] = {}
        for mime, data in bundle.items():
            if isinstance(data, Blob):
                whole = await self._blobs.get(data)
                loaded[mime] = whole.decode("utf-8") if data.text else whole
            else:
                loaded[mime] = data
        return loaded

    async def read_bytes(self, data: Data) -> bytes:
        match data:
            case Blob():
                return await self._blobs.get(data)
            case str():
                return data.encode("utf-8")
            case bytes():
                return data

    async def read_text(self, data: Data) -> str:
        return data if isinstance(data, str) else (await self.read_bytes(data)).decode("utf-8", "replace")

    async def read_image(self, cell: Cell, index: int) -> Image:
        """The cell's image with this index, in the order they were shown."""
        images = [image for output in cell.outputs if (image := find_image(output))]
        if not 0 <= index < len(images):
            last = len(images) - 1
            numbers = f", number{'s' * (last > 0)} 0{f' to {last}' * (last > 0)}" if images else ""
            there = f"{count(len(images), 'image')}{numbers}" if images else "no images"
            raise NotFound(f"Cell {cell.number} has {there}; there is no image {index}.")
        mime, data, source = images[index]
        return Image.from_bytes(await self.read_bytes(data), mime, source)


def find_image(output: Output) -> tuple[str, Data, str | None] | None:
    """The MIME type, data and source of an output's image, if it has one."""
    for mime in FORMATS:
        if mime in output.bundle:
            source = output.about.get("source")
            return mime, output.bundle[mime], source if isinstance(source, str) else "display"
    if PREVIEW in output.bundle:
        return "image/png", output.bundle[PREVIEW], "preview"
    return None
