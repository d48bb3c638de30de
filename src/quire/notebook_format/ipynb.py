"""Cells to a valid nbformat 4.5 document and back, with their outputs, counts and metadata.

What is read is kept: a document that is read and written is the same as before, as nbformat sees it. It is written
as nbformat writes it, so that a difference shows what was changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from quire.core.model import Cell, CellKind, Notebook, Output, OutputType, Run
from quire.notebook_format import mime_bundles
from quire.notebook_format.document import Document, check_text
from quire.notebook_format.ipynb_reader import KIND, Reader, wrong
from quire.notebook_format.mime_bundles import text_of

_DEPTH = 200  # lists and objects inside each other
_SPLIT = ("application/javascript", "image/svg+xml")  # written as a list of lines, besides text/*
_WIDGETS = "application/vnd.jupyter.widget-state+json"
_PYTHON = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python"},
}


def dumps(notebook: Notebook, cells: list[Cell], *, lines: bool = True) -> str:
    """The document's text. Outputs must hold their data: bytes and str, no blobs. Without `lines` text is not split
    into them, which is shorter to read for a model."""
    named = "kernelspec" in notebook.metadata or "language_info" in notebook.metadata
    written = [as_cell(cell) for cell in cells]
    document = {
        "cells": [_in_lines(cell) for cell in written] if lines else written,
        "metadata": _with_widgets({**({} if named else _PYTHON), **notebook.metadata}, cells),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    try:
        return _json(document)
    except ValueError:  # a number that JSON does not have
        return _json(_finite(document))


def loads(text: str) -> Document:
    """A document of any nbformat up to 4; anything else is refused with the reason."""
    document = _parsed(check_text(KIND, text))
    try:
        version, minor = _version(document)
        if version < 4:
            from quire.notebook_format.upgrade import upgraded

            document = upgraded(document, version)
        read = Reader(minor if version == 4 else 0).read(document)
    except RecursionError:
        raise wrong("it is nested too deeply") from None
    notes = []
    if version < 4:
        notes = [f"upgraded from nbformat {version}"]
    elif minor > 5:
        notes = [f"written by a newer Jupyter (nbformat 4.{minor}), read as 4.5"]
    return Document(metadata=read.metadata, cells=read.cells, notes=(*notes, *read.notes))


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list():
            return [_finite(each) for each in value]
        case _:
            return value


# Writing


def as_cell(cell: Cell) -> dict[str, Any]:
    """A cell of a document, its text not split into lines."""
    written: dict[str, Any] = {
        "cell_type": cell.kind.value,
        "id": cell.id,
        "metadata": cell.metadata,
        "source": cell.source,
    }
    if cell.kind is CellKind.CODE:
        written["execution_count"] = _count(cell.run)
        written["outputs"] = as_outputs(cell.outputs, cell.run)
    elif cell.attachments:
        written["attachments"] = {name: mime_bundles.hand_out(bundle) for name, bundle in cell.attachments.items()}
    return written


def as_outputs(outputs: Sequence[Output], run: Run | None) -> list[dict[str, Any]]:
    """Outputs of a document; pieces of one stream side by side are one."""
    return [each for output in _joined(outputs) for each in _output(output, run)]


def _count(run: Run | None) -> int | None:
    if run is None or (run.count == 0 and run.outputs and run.outputs[0].about.get("uncounted")):
        return None
    return run.count


def _joined(outputs: Sequence[Output]) -> list[tuple[Output, ...]]:
    """Each output alone, pieces of one stream side by side together."""
    groups: list[tuple[Output, ...]] = []
    for stream, group in groupby(outputs, _stream):
        together = tuple(group)
        groups += [together] if stream else [(output,) for output in together]
    return groups


def _stream(output: Output) -> str:
    return str(output.about.get("stream", output.name)) or " " if output.type is OutputType.STREAM else ""


def _output(outputs: tuple[Output, ...], run: Run | None) -> list[dict[str, Any]]:
    output = outputs[0]
    match output.type:
        case OutputType.STREAM:
            text = "".join(text_of(each.bundle["text/plain"]) for each in outputs)
            name = str(output.about.get("stream", output.name))
            return [{"output_type": "stream", "name": name, "text": text}]
        case OutputType.ERROR:
            return [_error(output)]
    shown: dict[str, Any] = {
        "output_type": "execute_result" if output.result else "display_data",
        "data": mime_bundles.hand_out(output.bundle, output.about.get("base64")),
        "metadata": output.metadata,
    }
    if output.result:
        shown["execution_count"] = output.about.get("execution_count", _count(run))
    return [shown]


def _error(output: Output) -> dict[str, Any]:
    lines = text_of(output.bundle["text/plain"]).split("\n")
    sizes = output.about.get("entries")
    if isinstance(sizes, list):
        rest = iter(lines)
        lines = ["\n".join(next(rest, "") for _ in range(size)) for size in sizes]
    return {
        "output_type": "error",
        "ename": output.name,
        "evalue": str(output.about.get("message", "")),
        "traceback": lines,
    }


def _in_lines(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell with its text as lists of lines, where nbformat writes it so."""
    cell["source"] = cell["source"].splitlines(True)
    for output in cell.get("outputs", ()):
        if "text" in output:
            output["text"] = output["text"].splitlines(True)
        _split(output.get("data", {}))
    for bundle in cell.get("attachments", {}).values():
        _split(bundle)
    return cell


def _split(data: dict[str, Any]) -> None:
    for mime, value in data.items():
        if isinstance(value, str) and (mime.startswith("text/") or mime in _SPLIT):
            data[mime] = value.splitlines(True)


def _with_widgets(metadata: dict[str, Any], cells: list[Cell]) -> dict[str, Any]:
    """With the state of the widgets that outputs show, where Jupyter looks for it."""
    state: dict[str, Any] = {}
    for output in (output for cell in cells if cell.kind is CellKind.CODE for output in cell.outputs):
        if mime_bundles.WIDGETS in output.bundle:
            models = mime_bundles.parsed(text_of(output.bundle[mime_bundles.WIDGETS]))
            state.update(models if isinstance(models, dict) else {})
    if not state:
        return metadata
    widgets = metadata.get("widgets") if isinstance(metadata.get("widgets"), dict) else {}
    there = widgets.get(_WIDGETS) if isinstance(widgets, dict) else None
    there = there if isinstance(there, dict) and isinstance(there.get("state"), dict) else {"state": {}}
    merged = {"version_major": 2, "version_minor": 0, **there, "state": {**there["state"], **state}}
    return {**metadata, "widgets": {**(widgets or {}), _WIDGETS: merged}}


# Reading


def _parsed(text: str) -> dict[str, Any]:
    if not text.strip():
        raise wrong("it is empty")
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise wrong(f"at line {error.lineno}, column {error.colno} the JSON is broken ({error.msg})") from None
    except RecursionError:
        raise wrong("it is nested too deeply") from None
    except ValueError:  # Python's limit on the digits of a number
        raise wrong("it holds a number of too many digits") from None
    if not isinstance(document, dict):
        raise wrong("it is JSON, but no object with cells")
    _check_depth(document)
    if "\\u" in text:
        _check_surrogates(document)
    return document


def _no_constant(name: str) -> Any:
    raise wrong(f"it holds {name}, which JSON does not have")


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(_DEPTH):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise wrong("it is nested too deeply")


def _check_surrogates(document: Any) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise wrong("it holds a lone surrogate (as \\ud800), which UTF-8 cannot say") from None


def _version(document: dict[str, Any]) -> tuple[int, int]:
    version, minor = document.get("nbformat", 1), document.get("nbformat_minor", 0)
    if not _is_version(version) or not _is_version(minor):
        raise wrong("its nbformat is not a whole number")
    if "nbformat" not in document and not _is_first(document):
        raise wrong("it is JSON, but no notebook: it has no nbformat")
    if version > 4:
        raise wrong(f"its nbformat {version} is newer than 4.5, the newest known here")
    if version < 1:
        raise wrong(f"there is no nbformat {version}")
    return version, minor


def _is_version(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1_000


def _is_first(document: dict[str, Any]) -> bool:
    """Whether it is of nbformat 1, which did not say so."""
    cells = document.get("cells")
    if not isinstance(cells, list) or not cells:
        return False
    return all(isinstance(each, dict) and {"code", "text"} & each.keys() for each in cells)
