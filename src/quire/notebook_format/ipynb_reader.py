"""Reads the cells of a parsed nbformat 4 document. Accepts what Jupyter opens, and notes what it repaired."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any
from uuid import uuid4

from quire.core.errors import InvalidRequest
from quire.core.model import (
    Attachments,
    CellId,
    CellKind,
    CellState,
    Data,
    NewCell,
    Output,
    OutputType,
    Run,
    RunId,
)
from quire.core.notebooks import images
from quire.notebook_format import document, metadata_repair, mime_bundles
from quire.notebook_format.document import Document, language_note

KIND = "ipynb document"
_TOP_KEYS = {"metadata", "nbformat", "nbformat_minor", "cells"}
_CELL_KEYS = {"cell_type", "id", "metadata", "source"}
_KEYS_OF_KIND = {"code": {"outputs", "execution_count"}, "markdown": {"attachments"}, "raw": {"attachments"}}
_EMPTY: tuple[Any, ...] = (None, [], {}, "", False)
_RENAMED_TYPES = {"pyout": "execute_result", "pyerr": "error", "update_display_data": "display_data"}
_OUTPUT_KEYS = {
    "stream": {"name", "text"},
    "error": {"ename", "evalue", "traceback"},
    "display_data": {"data", "metadata"},
    "execute_result": {"data", "metadata", "execution_count"},
}
_MAX_COUNT = 2**53
_MAX_NOTES = 8  # kinds of repairs that are listed


def invalid(why: str) -> InvalidRequest:
    return document.invalid_document(KIND, why)


class Reader:
    """Reads one document and collects notes about repairs."""

    def __init__(self, minor: int) -> None:
        self._has_ids = minor >= 5  # older versions have none, but some programs write them
        self._newer = minor > 5  # may have unknown cell types
        self._notes: Counter[str] = Counter()
        self._ids: dict[str, int] = {}

    def read(self, raw: dict[str, Any]) -> Document:
        cells = raw.get("cells")
        if not isinstance(cells, list):
            raise invalid("it has no list of cells")
        metadata, left_out = metadata_repair.notebook_metadata(_read_object(raw.get("metadata"), "its metadata"))
        self._note("left out, since nbformat does not allow it: metadata ", left_out)
        self._note("left out, since nbformat does not know it: ", sorted(set(raw) - _TOP_KEYS))
        new = [self.cell(number, cell) for number, cell in enumerate(cells)]
        return Document(metadata=metadata, cells=new, notes=(*language_note(metadata), *self._format_notes()))

    def _format_notes(self) -> list[str]:
        notes = [note + (f" ({count} times)" if count > 1 else "") for note, count in self._notes.items()]
        more = len(notes) - _MAX_NOTES
        return notes if more <= 0 else [*notes[:_MAX_NOTES], f"and {more:,} more such things"]

    def _note(self, description: str, names: list[str]) -> None:
        for name in names:
            self._notes[f"{description}{name[:50]!r}"] += 1

    def cell(self, number: int, raw: Any) -> NewCell:
        where = f"cell {number}"
        if not isinstance(raw, dict):
            raise invalid(f"{where} is {_kind(raw)}, not an object")
        kind = self._kind(number, raw)
        if not isinstance(kind, str) or kind not in _KEYS_OF_KIND:
            raise invalid(f"{where} has cell_type {str(kind)[:50]!r}, which is not code, markdown or raw")
        source = _read_text(raw.get("source", raw.get("input", "")), f"the source of {where}")
        document.check_source(KIND, number, source)
        return NewCell(
            source=source,
            kind=CellKind(kind),
            run=self._run(where, raw, source) if kind == "code" else None,
            metadata=self._cell_metadata(where, kind, raw),
            attachments={} if kind == "code" else self._attachments(where, raw.get("attachments")),
            id=self._id(number, raw),
        )

    def _kind(self, number: int, raw: dict[str, Any]) -> Any:
        kind = raw.get("cell_type")
        if self._newer and isinstance(kind, str) and kind not in _KEYS_OF_KIND:
            self._notes[f"taken as raw: cell {number}, of type {kind[:50]!r}"] += 1
            return "raw"
        return kind

    def _id(self, number: int, raw: dict[str, Any]) -> CellId:
        cell_id = raw.get("id")
        if not isinstance(cell_id, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell_id):
            if cell_id is not None:
                self._notes["given a new one: a cell's id that nbformat does not allow"] += 1
            return CellId("")
        if cell_id in self._ids and self._has_ids:
            raise invalid(f"cells {self._ids[cell_id]} and {number} have the same id {cell_id!r}")
        if cell_id in self._ids:
            return CellId("")
        self._ids[cell_id] = number
        return CellId(cell_id)

    def _cell_metadata(self, where: str, kind: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Metadata, with unknown keys of the cell moved into it: some programs write them there by mistake."""
        metadata = _read_object(raw.get("metadata"), f"the metadata of {where}")
        for key in raw.keys() - _CELL_KEYS - _KEYS_OF_KIND[kind] - {"prompt_number", "input", "language"}:
            if raw[key] in _EMPTY or key in ("outputs", "execution_count"):
                continue
            metadata = {key: raw[key], **metadata}
            self._note("moved into cells' metadata, where nbformat wants it: ", [key])
        tidied, left_out = metadata_repair.cell_metadata(kind, metadata)
        self._note("left out of cells' metadata or shortened, since nbformat does not allow it: ", left_out)
        return tidied

    def _attachments(self, where: str, raw: Any) -> Attachments:
        attached = _read_object(raw, f"the attachments of {where}")
        return {name: _read_attachment(f"attachment {name[:50]!r} of {where}", data) for name, data in attached.items()}

    def _run(self, where: str, raw: dict[str, Any], source: str) -> Run | None:
        """A run made from the outputs and the count in the document."""
        shown = raw.get("outputs")
        if not isinstance(shown, list | None):
            raise invalid(f"the outputs of {where} are {_kind(shown)}, not a list")
        count = _read_count(raw.get("execution_count", raw.get("prompt_number")), where)
        if not shown and count is None:
            return None
        outputs_read = [
            self._output(f"output {index} of {where}", output, count) for index, output in enumerate(shown or [])
        ]
        outputs = [output for output in outputs_read if output is not None]
        if count is None and outputs:
            outputs[0].about["uncounted"] = True
        return Run(
            id=RunId(uuid4().hex[:12]),
            cell=CellId(""),
            count=count or 0,
            source=source,
            author="import",
            started_at=time.time(),
            seconds=0.0,
            state=CellState.ERROR if any(output.type is OutputType.ERROR for output in outputs) else CellState.SUCCESS,
            outputs=tuple(outputs),
        )

    def _output(self, where: str, raw: Any, count: int | None) -> Output | None:
        if not isinstance(raw, dict):
            raise invalid(f"{where} is {_kind(raw)}, not an object")
        kind = _RENAMED_TYPES.get(str(raw.get("output_type")), raw.get("output_type"))
        if not isinstance(kind, str) or kind not in _OUTPUT_KEYS:
            self._note("left out: outputs of type ", [str(kind)])
            return None
        extra = sorted(raw.keys() - _OUTPUT_KEYS[kind] - {"output_type", "transient", "prompt_number"})
        self._note("left out of outputs, since nbformat does not know it: ", extra)
        match kind:
            case "stream":
                return _read_stream(raw, where)
            case "error":
                return _read_error(raw, where)
        return self._read_display(raw, where, count)

    def _read_display(self, raw: dict[str, Any], where: str, count: int | None) -> Output:
        data = _read_object(raw.get("data"), f"the data of {where}")
        bundle, layouts = mime_bundles.from_document(data)
        about: dict[str, Any] = {"base64": layouts} if layouts else {}
        result = raw["output_type"] in ("execute_result", "pyout")
        own_count = raw.get("execution_count", raw.get("prompt_number", count))
        if result and (own_count := _read_count(own_count, where)) != count:
            about["execution_count"] = own_count
        metadata = _read_object(raw.get("metadata"), f"the metadata of {where}")
        return Output(
            type=output_type_of(bundle),
            bundle=bundle,
            metadata=metadata,
            about={**about, **_image_size(bundle)},
            result=result,
        )


def _read_stream(raw: dict[str, Any], where: str) -> Output:
    name = raw.get("name", "stdout")
    if not isinstance(name, str):
        raise invalid(f"the name of {where} is {_kind(name)}, not text")
    text = _read_text(raw.get("text", ""), f"the text of {where}")
    stream = name if name in ("stdout", "stderr") else "stdout"
    about = {"stream": name} if name != stream else {}
    return Output(type=OutputType.STREAM, name=stream, bundle={"text/plain": text}, about=about)


def _read_error(raw: dict[str, Any], where: str) -> Output:
    """The traceback becomes one text. If entries have several lines, their line counts are stored with it."""
    name, message = (_to_text(raw.get(key)) for key in ("ename", "evalue"))
    entries = raw.get("traceback") or []
    entries = [entries] if isinstance(entries, str) else entries
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise invalid(f"the traceback of {where} is not a list of text")
    about: dict[str, Any] = {"message": message}
    if not entries or any("\n" in entry for entry in entries):
        about["entries"] = [entry.count("\n") + 1 for entry in entries]
    text = "\n".join(entries) if entries else f"{name}: {message}"
    return Output(type=OutputType.ERROR, name=name, bundle={"text/plain": text}, about=about)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _read_attachment(where: str, raw: Any) -> dict[str, Data]:
    """Bytes if the base64 is one line; else the text, since Quire does not display attachments."""
    data = _read_object(raw, where)
    bundle, layouts = mime_bundles.from_document(data)
    return {
        mime: bundle[mime] if mime in bundle and mime not in layouts else mime_bundles.as_text(value)
        for mime, value in data.items()
        if not mime_bundles.is_private(mime)
    }


def output_type_of(bundle: dict[str, Data]) -> OutputType:
    """The output type of displayed data."""
    html = bundle.get("text/html")
    if isinstance(html, str) and "text/plain" in bundle and 'class="dataframe' in html[:4_000]:
        return OutputType.DATAFRAME
    if any(mime in bundle for mime in images.FORMATS):
        return OutputType.IMAGE
    return OutputType.HTML if html is not None else OutputType.EXECUTE_RESULT


def _image_size(bundle: dict[str, Data]) -> dict[str, Any]:
    for mime in images.FORMATS:
        data = bundle.get(mime)
        if isinstance(data, (str, bytes)):
            width, height = images.dimensions(data.encode() if isinstance(data, str) else data, mime)
            return {"width": width, "height": height}
    return {}


def _read_count(value: Any, where: str) -> int | None:
    if value is None or value == "*":  # old programs wrote it during a run
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(f"the execution_count of {where} is {_kind(value)}, not a whole number")
    if not 0 <= value <= _MAX_COUNT:
        raise invalid(f"the execution_count of {where} is below 0 or too large")
    return value


def _read_object(value: Any, description: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{description} is {_kind(value)}, not an object")
    return dict(value)


def _read_text(value: Any, description: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    raise invalid(f"{description} is {_kind(value)}, not text")


def _kind(value: Any) -> str:
    """The name of the JSON type."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
