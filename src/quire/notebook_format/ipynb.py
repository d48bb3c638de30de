"""Writes cells to a valid nbformat 4.5 document and reads them back, with outputs, counts and metadata.

Reading and writing a document does not change it for nbformat. It is written in the layout of nbformat, so that a diff
shows only changes.
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
from quire.notebook_format.ipynb_reader import KIND, Reader, invalid
from quire.notebook_format.mime_bundles import text_of

_MAX_DEPTH = 200  # nested lists and objects
_TEXT_TYPES = ("application/javascript", "image/svg+xml")  # written as lists of lines, like text/*
_WIDGETS = "application/vnd.jupyter.widget-state+json"
_PYTHON = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python"},
}


def dumps(notebook: Notebook, cells: list[Cell], *, lines: bool = True) -> str:
    """The document's text. Outputs must have their data loaded: bytes and str, no blobs. Without `lines`, text is not
    split into lists of lines, which is shorter for a model."""
    has_language = "kernelspec" in notebook.metadata or "language_info" in notebook.metadata
    nb_cells = [as_cell(cell) for cell in cells]
    document = {
        "cells": [_split_cell(cell) for cell in nb_cells] if lines else nb_cells,
        "metadata": _add_widget_state({**({} if has_language else _PYTHON), **notebook.metadata}, cells),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    try:
        return _json(document)
    except ValueError:  # NaN or infinity
        return _json(_without_nonfinite(document))


def loads(text: str) -> Document:
    """Reads a document of nbformat 1 to 4. Raises InvalidRequest with the reason if it is invalid."""
    document = _parse(check_text(KIND, text))
    try:
        version, minor = _version(document)
        if version < 4:
            from quire.notebook_format.upgrade import upgrade

            document = upgrade(document, version)
        read = Reader(minor if version == 4 else 0).read(document)
    except RecursionError:
        raise invalid("it is nested too deeply") from None
    notes = []
    if version < 4:
        notes = [f"upgraded from nbformat {version}"]
    elif minor > 5:
        notes = [f"written by a newer Jupyter (nbformat 4.{minor}), read as 4.5"]
    return Document(metadata=read.metadata, cells=read.cells, notes=(*notes, *read.notes))


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"


def _without_nonfinite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _without_nonfinite(item) for key, item in value.items()}
        case list():
            return [_without_nonfinite(item) for item in value]
        case _:
            return value


# Writing


def as_cell(cell: Cell) -> dict[str, Any]:
    """The cell of a document, with text as strings."""
    nb_cell: dict[str, Any] = {
        "cell_type": cell.kind.value,
        "id": cell.id,
        "metadata": cell.metadata,
        "source": cell.source,
    }
    if cell.kind is CellKind.CODE:
        nb_cell["execution_count"] = _execution_count(cell.run)
        nb_cell["outputs"] = as_outputs(cell.outputs, cell.run)
    elif cell.attachments:
        nb_cell["attachments"] = {name: mime_bundles.to_document(bundle) for name, bundle in cell.attachments.items()}
    return nb_cell


def as_outputs(outputs: Sequence[Output], run: Run | None) -> list[dict[str, Any]]:
    """Outputs of a document. Consecutive pieces of a stream become one output."""
    return [nb_output for group in _group_streams(outputs) for nb_output in _to_outputs(group, run)]


def _execution_count(run: Run | None) -> int | None:
    if run is None or (run.count == 0 and run.outputs and run.outputs[0].about.get("uncounted")):
        return None
    return run.count


def _group_streams(outputs: Sequence[Output]) -> list[tuple[Output, ...]]:
    """Groups consecutive pieces of a stream; every other output is its own group."""
    groups: list[tuple[Output, ...]] = []
    for stream, group in groupby(outputs, _stream_name):
        outputs_of_stream = tuple(group)
        groups += [outputs_of_stream] if stream else [(output,) for output in outputs_of_stream]
    return groups


def _stream_name(output: Output) -> str:
    return str(output.about.get("stream", output.name)) or " " if output.type is OutputType.STREAM else ""


def _to_outputs(outputs: tuple[Output, ...], run: Run | None) -> list[dict[str, Any]]:
    output = outputs[0]
    match output.type:
        case OutputType.STREAM:
            text = "".join(text_of(piece.bundle["text/plain"]) for piece in outputs)
            name = str(output.about.get("stream", output.name))
            return [{"output_type": "stream", "name": name, "text": text}]
        case OutputType.ERROR:
            return [_to_error(output)]
    nb_output: dict[str, Any] = {
        "output_type": "execute_result" if output.result else "display_data",
        "data": mime_bundles.to_document(output.bundle, output.about.get("base64")),
        "metadata": output.metadata,
    }
    if output.result:
        nb_output["execution_count"] = output.about.get("execution_count", _execution_count(run))
    return [nb_output]


def _to_error(output: Output) -> dict[str, Any]:
    lines = text_of(output.bundle["text/plain"]).split("\n")
    sizes = output.about.get("entries")
    if isinstance(sizes, list):
        remaining = iter(lines)
        lines = ["\n".join(next(remaining, "") for _ in range(size)) for size in sizes]
    return {
        "output_type": "error",
        "ename": output.name,
        "evalue": str(output.about.get("message", "")),
        "traceback": lines,
    }


def _split_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """Splits text into lists of lines where nbformat does."""
    cell["source"] = cell["source"].splitlines(True)
    for output in cell.get("outputs", ()):
        if "text" in output:
            output["text"] = output["text"].splitlines(True)
        _split_bundle(output.get("data", {}))
    for bundle in cell.get("attachments", {}).values():
        _split_bundle(bundle)
    return cell


def _split_bundle(data: dict[str, Any]) -> None:
    for mime, value in data.items():
        if isinstance(value, str) and (mime.startswith("text/") or mime in _TEXT_TYPES):
            data[mime] = value.splitlines(True)


def _add_widget_state(metadata: dict[str, Any], cells: list[Cell]) -> dict[str, Any]:
    """Metadata with the state of displayed widgets, in the key that Jupyter reads."""
    state: dict[str, Any] = {}
    for output in (output for cell in cells if cell.kind is CellKind.CODE for output in cell.outputs):
        if mime_bundles.WIDGETS in output.bundle:
            models = mime_bundles.parse_json(text_of(output.bundle[mime_bundles.WIDGETS]))
            state.update(models if isinstance(models, dict) else {})
    if not state:
        return metadata
    widgets = metadata.get("widgets") if isinstance(metadata.get("widgets"), dict) else {}
    stored = widgets.get(_WIDGETS) if isinstance(widgets, dict) else None
    stored = stored if isinstance(stored, dict) and isinstance(stored.get("state"), dict) else {"state": {}}
    merged = {"version_major": 2, "version_minor": 0, **stored, "state": {**stored["state"], **state}}
    return {**metadata, "widgets": {**(widgets or {}), _WIDGETS: merged}}


# Reading


def _parse(text: str) -> dict[str, Any]:
    if not text.strip():
        raise invalid("it is empty")
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise invalid(f"at line {error.lineno}, column {error.colno} the JSON is broken ({error.msg})") from None
    except RecursionError:
        raise invalid("it is nested too deeply") from None
    except ValueError:  # Python limits the digits of a number
        raise invalid("it holds a number of too many digits") from None
    if not isinstance(document, dict):
        raise invalid("it is JSON, but no object with cells")
    _check_depth(document)
    if "\\u" in text:
        _check_surrogates(document)
    return document


def _refuse_constant(name: str) -> Any:
    raise invalid(f"it holds {name}, which JSON does not have")


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise invalid("it is nested too deeply")


def _check_surrogates(document: Any) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise invalid("it holds a lone surrogate (as \\ud800), which UTF-8 cannot encode") from None


def _version(document: dict[str, Any]) -> tuple[int, int]:
    version, minor = document.get("nbformat", 1), document.get("nbformat_minor", 0)
    if not _is_version(version) or not _is_version(minor):
        raise invalid("its nbformat is not a whole number")
    if "nbformat" not in document and not _is_version_1(document):
        raise invalid("it is JSON, but no notebook: it has no nbformat")
    if version > 4:
        raise invalid(f"its nbformat {version} is newer than 4.5, the newest known here")
    if version < 1:
        raise invalid(f"there is no nbformat {version}")
    return version, minor


def _is_version(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1_000


def _is_version_1(document: dict[str, Any]) -> bool:
    """Whether it is nbformat 1, which has no version number."""
    cells = document.get("cells")
    if not isinstance(cells, list) or not cells:
        return False
    return all(isinstance(cell, dict) and {"code", "text"} & cell.keys() for cell in cells)
