"""Writes notebooks as Markdown: fenced code, outputs as text, embedded images. It cannot be imported again."""

from __future__ import annotations

import base64
import re

from quire.core.model import Cell, CellKind, Data, Notebook, Output, OutputType
from quire.core.notebooks.images import FORMATS
from quire.core.runs import model_text
from quire.notebook_format.mime_bundles import text_of


def dumps(notebook: Notebook, cells: list[Cell]) -> str:
    language = _language(notebook)
    return "\n\n".join(part for cell in cells for part in _cell(cell, language) if part.strip()) + "\n"


def _language(notebook: Notebook) -> str:
    info = notebook.metadata.get("language_info")
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) and re.fullmatch(r"[\w.+#-]{1,50}", name) else "python"


def _cell(cell: Cell, language: str) -> list[str]:
    match cell.kind:
        case CellKind.CODE:
            code = _fence(cell.source, language) if cell.source.strip() else ""
            return [code, *map(_output, cell.outputs)]
        case CellKind.MARKDOWN:
            return [_with_attachments(cell)]
        case _:
            return [_fence(cell.source, "")]


def _with_attachments(cell: Cell) -> str:
    text = cell.source
    for name, bundle in cell.attachments.items():
        for mime, data in bundle.items():
            if mime in FORMATS:
                text = text.replace(f"(attachment:{name})", f"({_data_url(mime, data)})")
    return text


def _output(output: Output) -> str:
    if output.type is not OutputType.STREAM:
        for mime in FORMATS:
            if mime in output.bundle:
                return f"![]({_data_url(mime, output.bundle[mime])})"
        if "text/markdown" in output.bundle:
            return text_of(output.bundle["text/markdown"])
    mime = model_text.best_mime_type(output)
    text = model_text.final_text(model_text.as_text(mime, text_of(output.bundle.get(mime, ""))))
    return _fence(text.rstrip("\n"), "text") if text.strip() else ""


def _data_url(mime: str, data: Data) -> str:
    content = data if isinstance(data, bytes) else text_of(data).encode()
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"


def _fence(text: str, language: str) -> str:
    """A fenced block. The fence is longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
