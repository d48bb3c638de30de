"""A parsed notebook file, and the checks that all formats share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.model import NewCell

MAX_DOCUMENT_BYTES = 50_000_000  # of a document
_MAX_SOURCE_BYTES = 1_000_000  # of one cell


@dataclass(frozen=True, kw_only=True)
class Document:
    metadata: dict[str, Any]
    cells: list[NewCell]
    notes: tuple[str, ...] = ()  # for the caller, such as "upgraded from nbformat 3"


def invalid_document(kind: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"This is not a valid {kind}: {why}. Nothing was imported.")


def check_text(kind: str, text: str) -> str:
    """The text without its byte order mark. Raises InvalidRequest if it is too long or not encodable as UTF-8."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise invalid_document(
            kind, f"it holds a lone surrogate at character {error.start}, which UTF-8 cannot encode"
        ) from None
    if size > MAX_DOCUMENT_BYTES:
        raise InvalidRequest(
            f"The document has {size:,} bytes, over the limit of {MAX_DOCUMENT_BYTES:,}. Nothing was imported."
        )
    return text.removeprefix("\ufeff")


def check_source(kind: str, number: int, source: str) -> str:
    if "\x00" in source:
        raise invalid_document(kind, f"the source of cell {number} holds a NUL byte")
    if len(source) > _MAX_SOURCE_BYTES // 4 and len(source.encode("utf-8")) > _MAX_SOURCE_BYTES:
        raise invalid_document(kind, f"the source of cell {number} has more than {_MAX_SOURCE_BYTES:,} bytes")
    return source


def language_note(metadata: dict[str, Any]) -> list[str]:
    """A note if the cells are not in Python."""
    for key, field in (("language_info", "name"), ("kernelspec", "language")):
        section = metadata.get(key)
        language = section.get(field) if isinstance(section, dict) else None
        if isinstance(language, str) and language:
            if "python" in language.lower():
                return []
            return [f"its language is {language[:50]}: its cells are not Python"]
    return []
