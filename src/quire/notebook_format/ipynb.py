"""Cells to a valid nbformat 4.5 document and back, with their outputs, counts and metadata."""

from __future__ import annotations

import base64
import binascii
import json
import time
from typing import Any
from uuid import uuid4

import nbformat

from quire.core.errors import Refused
from quire.core.model import (
    Cell,
    CellId,
    CellKind,
    CellState,
    Data,
    NewCell,
    Notebook,
    Output,
    OutputType,
    Run,
    RunId,
)

_BINARY = ("image/png", "image/jpeg", "application/pdf")
_OWN = ("application/octet-stream", "image/vnd.quire.preview+png")  # ours alone, not for a document
_SOURCE_LIMIT = 1_000_000  # characters of one cell


def dumps(notebook: Notebook, cells: list[Cell]) -> str:
    """The document's text. Outputs must hold their data: bytes and str, no blobs."""
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
            **notebook.metadata,
        },
        "cells": [_cell(cell) for cell in cells],
    }
    nbformat.validate(nbformat.from_dict(document))  # type: ignore[no-untyped-call]  # nbformat is half typed
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def loads(text: str) -> list[NewCell]:
    """The cells of a document of nbformat 3 to 4.5; anything else is refused with the reason."""
    try:
        document = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(document)
    except RecursionError:
        raise Refused("This is not a notebook: it is nested too deeply.") from None
    except Exception as error:  # nbformat raises many kinds, none of them ours
        reason = str(error).strip().split("\n")[0][:300]
        raise Refused(f"This is not a valid ipynb document: {reason}. Nothing was imported.") from None
    return [_new_cell(cell) for cell in document["cells"]]


def _cell(cell: Cell) -> dict[str, Any]:
    written: dict[str, Any] = {
        "cell_type": cell.kind.value,
        "id": cell.id,
        "metadata": dict(cell.metadata),
        "source": cell.source,
    }
    if cell.kind is CellKind.CODE:
        written["execution_count"] = cell.run.count if cell.run else None
        written["outputs"] = [_output(output, cell.run) for output in cell.outputs]
    return written


def _output(output: Output, run: Run | None) -> dict[str, Any]:
    match output.type:
        case OutputType.STREAM:
            return {"output_type": "stream", "name": output.name, "text": _text(output.bundle["text/plain"])}
        case OutputType.ERROR:
            return {
                "output_type": "error",
                "ename": output.name,
                "evalue": str(output.about.get("message", "")),
                "traceback": _text(output.bundle["text/plain"]).split("\n"),
            }
    shown: dict[str, Any] = {
        "output_type": "execute_result" if output.result else "display_data",
        "data": {mime: _data(mime, data) for mime, data in output.bundle.items() if mime not in _OWN},
        "metadata": {},
    }
    if output.result:
        shown["execution_count"] = run.count if run else None
    return shown


def _data(mime: str, data: Data) -> Any:
    if isinstance(data, bytes):
        return base64.b64encode(data).decode("ascii")
    text = _text(data)
    if mime == "application/json" or mime.endswith("+json"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _text(data: Data) -> str:
    if not isinstance(data, str):
        raise TypeError("an output's data must be loaded before it is written")
    return data


def _new_cell(cell: Any) -> NewCell:
    source = str(cell["source"])
    if len(source) > _SOURCE_LIMIT or "\x00" in source:
        raise Refused("A cell of the document is too large or holds a NUL byte. Nothing was imported.")
    kind = CellKind(cell["cell_type"])
    return NewCell(
        source=source,
        kind=kind,
        run=_run(cell) if kind is CellKind.CODE and (cell["outputs"] or cell["execution_count"]) else None,
        metadata=json.loads(json.dumps(cell["metadata"])),
    )


def _run(cell: Any) -> Run:
    """What the document shows of a cell's last run, as a run nobody here did."""
    outputs = tuple(_read_output(output) for output in cell["outputs"])
    failed = any(output.type is OutputType.ERROR for output in outputs)
    return Run(
        id=RunId(uuid4().hex[:12]),
        cell=CellId(""),
        count=int(cell["execution_count"] or 0),
        source=str(cell["source"]),
        author="import",
        started_at=time.time(),
        seconds=0.0,
        state=CellState.ERROR if failed else CellState.SUCCESS,
        outputs=outputs,
    )


def _read_output(output: Any) -> Output:
    match output["output_type"]:
        case "stream":
            name = "stderr" if output["name"] == "stderr" else "stdout"
            return Output(type=OutputType.STREAM, name=name, bundle={"text/plain": str(output["text"])})
        case "error":
            return Output(
                type=OutputType.ERROR,
                name=str(output["ename"]),
                bundle={"text/plain": "\n".join(output["traceback"])},
                about={"message": str(output["evalue"])},
            )
    bundle = {str(mime): _read_data(mime, data) for mime, data in output["data"].items()}
    return Output(type=_type(bundle), bundle=bundle, result=output["output_type"] == "execute_result")


def _read_data(mime: str, data: Any) -> Data:
    if mime in _BINARY and isinstance(data, str):
        try:
            return base64.b64decode(data)
        except binascii.Error:
            raise Refused(f"An output's {mime} is not base64. Nothing was imported.") from None
    return data if isinstance(data, str) else json.dumps(data)


def _type(bundle: dict[str, Data]) -> OutputType:
    if any(mime.startswith("image/") for mime in bundle):
        return OutputType.IMAGE
    return OutputType.HTML if "text/html" in bundle else OutputType.EXECUTE_RESULT
