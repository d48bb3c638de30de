"""A parsed nbformat 4 document to cells: what Jupyter opens is taken, and what was put right for that is noted."""

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
_TOP = {"metadata", "nbformat", "nbformat_minor", "cells"}
_CELL = {"cell_type", "id", "metadata", "source"}
_OF_KIND = {"code": {"outputs", "execution_count"}, "markdown": {"attachments"}, "raw": {"attachments"}}
_EMPTY: tuple[Any, ...] = (None, [], {}, "", False)
_OLD_NAMES = {"pyout": "execute_result", "pyerr": "error", "update_display_data": "display_data"}
_OUTPUT = {
    "stream": {"name", "text"},
    "error": {"ename", "evalue", "traceback"},
    "display_data": {"data", "metadata"},
    "execute_result": {"data", "metadata", "execution_count"},
}
_MOST_COUNT = 2**53
_NOTES = 8  # kinds of repair that are told


def wrong(why: str) -> InvalidRequest:
    return document.wrong(KIND, why)


class Reader:
    """One for a document."""

    def __init__(self, minor: int) -> None:
        self._has_ids = minor >= 5  # before there are none, though some programs write them
        self._newer = minor > 5  # there may be kinds of cells that nobody knows yet
        self._notes: Counter[str] = Counter()
        self._ids: dict[str, int] = {}

    def read(self, given: dict[str, Any]) -> Document:
        cells = given.get("cells")
        if not isinstance(cells, list):
            raise wrong("it has no list of cells")
        metadata, left_out = metadata_repair.notebook_metadata(_object(given.get("metadata"), "its metadata"))
        self._note("left out, since nbformat does not allow it: metadata ", left_out)
        self._note("left out, since nbformat does not know it: ", sorted(set(given) - _TOP))
        new = [self.cell(number, cell) for number, cell in enumerate(cells)]
        return Document(metadata=metadata, cells=new, notes=(*language_note(metadata), *self._said()))

    def _said(self) -> list[str]:
        notes = [note + (f" ({count} times)" if count > 1 else "") for note, count in self._notes.items()]
        more = len(notes) - _NOTES
        return notes if more <= 0 else [*notes[:_NOTES], f"and {more:,} more such things"]

    def _note(self, what: str, names: list[str]) -> None:
        for name in names:
            self._notes[f"{what}{name[:50]!r}"] += 1

    def cell(self, number: int, given: Any) -> NewCell:
        where = f"cell {number}"
        if not isinstance(given, dict):
            raise wrong(f"{where} is {_kind(given)}, not an object")
        kind = self._kind(number, given)
        if not isinstance(kind, str) or kind not in _OF_KIND:
            raise wrong(f"{where} has cell_type {str(kind)[:50]!r}, which is none of code, markdown and raw")
        source = _text(given.get("source", given.get("input", "")), f"the source of {where}")
        document.check_source(KIND, number, source)
        return NewCell(
            source=source,
            kind=CellKind(kind),
            run=self._run(where, given, source) if kind == "code" else None,
            metadata=self._cell_metadata(where, kind, given),
            attachments={} if kind == "code" else self._attachments(where, given.get("attachments")),
            id=self._id(number, given),
        )

    def _kind(self, number: int, given: dict[str, Any]) -> Any:
        kind = given.get("cell_type")
        if self._newer and isinstance(kind, str) and kind not in _OF_KIND:
            self._notes[f"taken as raw: cell {number}, of type {kind[:50]!r}"] += 1
            return "raw"
        return kind

    def _id(self, number: int, given: dict[str, Any]) -> CellId:
        id_ = given.get("id")
        if not isinstance(id_, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id_):
            if id_ is not None:
                self._notes["given a new one: a cell's id that nbformat does not allow"] += 1
            return CellId("")
        if id_ in self._ids and self._has_ids:
            raise wrong(f"cells {self._ids[id_]} and {number} have the same id {id_!r}")
        if id_ in self._ids:
            return CellId("")
        self._ids[id_] = number
        return CellId(id_)

    def _cell_metadata(self, where: str, kind: str, given: dict[str, Any]) -> dict[str, Any]:
        """With the cell's own keys that nbformat does not know: programs put them there by mistake."""
        metadata = _object(given.get("metadata"), f"the metadata of {where}")
        for key in given.keys() - _CELL - _OF_KIND[kind] - {"prompt_number", "input", "language"}:
            if given[key] in _EMPTY or key in ("outputs", "execution_count"):
                continue
            metadata = {key: given[key], **metadata}
            self._note("moved into cells' metadata, where nbformat wants it: ", [key])
        tidied, left_out = metadata_repair.cell_metadata(kind, metadata)
        self._note("left out of cells' metadata or shortened, since nbformat does not allow it: ", left_out)
        return tidied

    def _attachments(self, where: str, given: Any) -> Attachments:
        attached = _object(given, f"the attachments of {where}")
        return {name: _attachment(f"attachment {name[:50]!r} of {where}", each) for name, each in attached.items()}

    def _run(self, where: str, given: dict[str, Any], source: str) -> Run | None:
        """What the document shows of a cell's last run, as a run nobody here did."""
        shown = given.get("outputs")
        if not isinstance(shown, list | None):
            raise wrong(f"the outputs of {where} are {_kind(shown)}, not a list")
        count = _count(given.get("execution_count", given.get("prompt_number")), where)
        if not shown and count is None:
            return None
        read = [self._output(f"output {place} of {where}", each, count) for place, each in enumerate(shown or [])]
        outputs = [output for output in read if output is not None]
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
            state=CellState.ERROR if any(each.type is OutputType.ERROR for each in outputs) else CellState.SUCCESS,
            outputs=tuple(outputs),
        )

    def _output(self, where: str, given: Any, count: int | None) -> Output | None:
        if not isinstance(given, dict):
            raise wrong(f"{where} is {_kind(given)}, not an object")
        kind = _OLD_NAMES.get(str(given.get("output_type")), given.get("output_type"))
        if not isinstance(kind, str) or kind not in _OUTPUT:
            self._note("left out: outputs of type ", [str(kind)])
            return None
        extra = sorted(given.keys() - _OUTPUT[kind] - {"output_type", "transient", "prompt_number"})
        self._note("left out of outputs, since nbformat does not know it: ", extra)
        match kind:
            case "stream":
                return _stream(given, where)
            case "error":
                return _error(given, where)
        return self._shown(given, where, count)

    def _shown(self, given: dict[str, Any], where: str, count: int | None) -> Output:
        data = _object(given.get("data"), f"the data of {where}")
        bundle, layouts = mime_bundles.take_in(data)
        about: dict[str, Any] = {"base64": layouts} if layouts else {}
        result = given["output_type"] in ("execute_result", "pyout")
        own = given.get("execution_count", given.get("prompt_number", count))
        if result and (own := _count(own, where)) != count:
            about["execution_count"] = own
        metadata = _object(given.get("metadata"), f"the metadata of {where}")
        return Output(
            type=kind_of(bundle), bundle=bundle, metadata=metadata, about={**about, **_picture(bundle)}, result=result
        )


def _stream(given: dict[str, Any], where: str) -> Output:
    name = given.get("name", "stdout")
    if not isinstance(name, str):
        raise wrong(f"the name of {where} is {_kind(name)}, not text")
    text = _text(given.get("text", ""), f"the text of {where}")
    ours = name if name in ("stdout", "stderr") else "stdout"
    about = {"stream": name} if name != ours else {}
    return Output(type=OutputType.STREAM, name=ours, bundle={"text/plain": text}, about=about)


def _error(given: dict[str, Any], where: str) -> Output:
    """Its traceback as one text; where entries are of several lines, how many each has is kept beside it."""
    name, message = (_words(given.get(key)) for key in ("ename", "evalue"))
    entries = given.get("traceback") or []
    entries = [entries] if isinstance(entries, str) else entries
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise wrong(f"the traceback of {where} is not a list of text")
    about: dict[str, Any] = {"message": message}
    if not entries or any("\n" in entry for entry in entries):
        about["entries"] = [entry.count("\n") + 1 for entry in entries]
    text = "\n".join(entries) if entries else f"{name}: {message}"
    return Output(type=OutputType.ERROR, name=name, bundle={"text/plain": text}, about=about)


def _words(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _attachment(where: str, given: Any) -> dict[str, Data]:
    """Bytes where their base64 is in one line; else the text, which nobody here looks at."""
    data = _object(given, where)
    bundle, layouts = mime_bundles.take_in(data)
    return {
        mime: bundle[mime] if mime in bundle and mime not in layouts else mime_bundles.as_text(value)
        for mime, value in data.items()
        if not mime_bundles.is_private(mime)
    }


def kind_of(bundle: dict[str, Data]) -> OutputType:
    """What something shown is, by its bundle."""
    html = bundle.get("text/html")
    if isinstance(html, str) and "text/plain" in bundle and 'class="dataframe' in html[:4_000]:
        return OutputType.DATAFRAME
    if any(mime in bundle for mime in images.FORMATS):
        return OutputType.IMAGE
    return OutputType.HTML if html is not None else OutputType.EXECUTE_RESULT


def _picture(bundle: dict[str, Data]) -> dict[str, Any]:
    for mime in images.FORMATS:
        data = bundle.get(mime)
        if isinstance(data, (str, bytes)):
            width, height = images.dimensions(data.encode() if isinstance(data, str) else data, mime)
            return {"width": width, "height": height}
    return {}


def _count(value: Any, where: str) -> int | None:
    if value is None or value == "*":  # old programs wrote that while it ran
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(f"the execution_count of {where} is {_kind(value)}, not a whole number")
    if not 0 <= value <= _MOST_COUNT:
        raise wrong(f"the execution_count of {where} is below 0 or too large")
    return value


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(f"{what} is {_kind(value)}, not an object")
    return dict(value)


def _text(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    raise wrong(f"{what} is {_kind(value)}, not text")


def _kind(value: Any) -> str:
    """In JSON's words."""
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
