"""Converts documents of nbformat 1 to 3 to nbformat 4, with nbformat."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from quire.notebook_format.document import invalid_document

_KIND = "ipynb document"


def upgrade(document: dict[str, Any], version: int) -> dict[str, Any]:
    """Raises InvalidRequest if nbformat cannot convert it."""
    import nbformat  # import takes 90 ms, and old documents are rare
    from nbformat.converter import convert

    _fill_missing(document, version)
    logging.getLogger("traitlets").addFilter(_is_not_validation_message)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = nbformat.versions[version].to_notebook_json(document, minor=document.get("nbformat_minor", 0))
            upgraded: dict[str, Any] = convert(node, 4)  # type: ignore[no-untyped-call]  # nbformat has few types
    except RecursionError:
        raise invalid_document(_KIND, "it is nested too deeply") from None
    except Exception as error:  # nbformat raises many types
        reason = str(error).strip().split("\n")[0][:200]
        raise invalid_document(
            _KIND, f"nbformat {version} could not be upgraded ({type(error).__name__}: {reason})"
        ) from None
    return upgraded


def _is_not_validation_message(record: logging.LogRecord) -> bool:
    """Filters out nbformat's messages about invalid old documents."""
    return "Notebook JSON is" not in str(record.msg)


def _fill_missing(document: dict[str, Any], version: int) -> None:
    """Add fields that nbformat's conversion requires and old documents often lack."""
    if not isinstance(document.get("metadata"), dict):
        document["metadata"] = {}
    if version == 1:
        return
    sheets = document.setdefault("worksheets", [])
    for sheet in sheets if isinstance(sheets, list) else []:
        cells = sheet.setdefault("cells", []) if isinstance(sheet, dict) else None
        for cell in cells if isinstance(cells, list) else []:
            if isinstance(cell, dict) and cell.get("cell_type") == "code" and not isinstance(cell.get("outputs"), list):
                cell["outputs"] = []
