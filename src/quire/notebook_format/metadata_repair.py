"""Metadata that nbformat's schema does not allow, put right or left out; the rest stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_TRANSIENT = ("orig_nbformat", "orig_nbformat_minor", "signature")  # never meant to be in a file
_INFO = ("file_extension", "mimetype", "pygments_lexer")


def notebook_metadata(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The metadata, and the names of what was left out."""
    metadata = {key: value for key, value in given.items() if key not in _TRANSIENT}
    for key, repair in (("kernelspec", _kernelspec), ("language_info", _language_info)):
        if key in metadata:
            metadata[key] = repair(metadata[key])
    bad: list[str] = [key for key in ("kernelspec", "language_info") if key in metadata and metadata[key] is None]
    bad += [key for key, kind in (("title", str), ("authors", list)) if not isinstance(metadata.get(key, kind()), kind)]
    return {key: value for key, value in metadata.items() if key not in bad}, bad


def _kernelspec(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, dict):
        return None
    name, shown = given.get("name"), given.get("display_name")
    name = name if isinstance(name, str) else shown
    if not isinstance(name, str):
        return None
    return {**given, "name": name, "display_name": shown if isinstance(shown, str) else name}


def _language_info(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return None
    bad = [key for key in _INFO if not isinstance(given.get(key, ""), str)]
    bad += ["codemirror_mode"] * (not isinstance(given.get("codemirror_mode", ""), (str, dict)))
    return {key: value for key, value in given.items() if key not in bad}


def cell_metadata(kind: str, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The metadata, and the names of what was left out."""
    checks = {**_ANY_CELL, **_OF_KIND[kind]}
    bad = [key for key, fits in checks.items() if key in given and not fits(given[key])]
    metadata = {key: value for key, value in given.items() if key not in bad and key != "trusted"}
    if "tags" in bad and isinstance(given["tags"], list):
        tags = [tag for tag in given["tags"] if isinstance(tag, str) and re.search(r"^[^,]+$", tag)]
        metadata["tags"] = list(dict.fromkeys(tags))
    return metadata, bad


def _is_tags(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        return False
    return len(set(value)) == len(value) and all(re.search(r"^[^,]+$", tag) for tag in value)


def _is_execution(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


_Checks = dict[str, Callable[[Any], bool]]
_ANY_CELL: _Checks = {
    "name": lambda value: isinstance(value, str) and re.search(r"^.+$", value) is not None,
    "tags": _is_tags,
    "jupyter": lambda value: isinstance(value, dict),
}
_OF_KIND: dict[str, _Checks] = {
    "code": {
        "execution": _is_execution,
        "collapsed": lambda value: isinstance(value, bool),
        "scrolled": lambda value: isinstance(value, bool) or value == "auto",
    },
    "markdown": {},
    "raw": {"format": lambda value: isinstance(value, str)},
}
