"""Repairs or removes metadata that nbformat's schema does not allow. The rest is unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_TRANSIENT_KEYS = ("orig_nbformat", "orig_nbformat_minor", "signature")  # not meant to be in a file
_TEXT_KEYS = ("file_extension", "mimetype", "pygments_lexer")


def notebook_metadata(raw: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The repaired metadata, and the keys that were removed or shortened."""
    metadata = {key: value for key, value in raw.items() if key not in _TRANSIENT_KEYS}
    for key, repair in (("kernelspec", _kernelspec), ("language_info", _language_info)):
        if key in metadata:
            metadata[key] = repair(metadata[key])
    invalid: list[str] = [key for key in ("kernelspec", "language_info") if key in metadata and metadata[key] is None]
    invalid += [
        key for key, kind in (("title", str), ("authors", list)) if not isinstance(metadata.get(key, kind()), kind)
    ]
    return {key: value for key, value in metadata.items() if key not in invalid}, invalid


def _kernelspec(raw: Any) -> dict[str, Any] | None:
    if not isinstance(raw, dict):
        return None
    name, display_name = raw.get("name"), raw.get("display_name")
    name = name if isinstance(name, str) else display_name
    if not isinstance(name, str):
        return None
    return {**raw, "name": name, "display_name": display_name if isinstance(display_name, str) else name}


def _language_info(raw: Any) -> dict[str, Any] | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    invalid = [key for key in _TEXT_KEYS if not isinstance(raw.get(key, ""), str)]
    invalid += ["codemirror_mode"] * (not isinstance(raw.get("codemirror_mode", ""), (str, dict)))
    return {key: value for key, value in raw.items() if key not in invalid}


def cell_metadata(kind: str, raw: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The repaired metadata, and the keys that were removed or shortened."""
    checks = {**_CELL_CHECKS, **_CHECKS_OF_KIND[kind]}
    invalid = [key for key, is_valid in checks.items() if key in raw and not is_valid(raw[key])]
    metadata = {key: value for key, value in raw.items() if key not in invalid and key != "trusted"}
    if "tags" in invalid and isinstance(raw["tags"], list):
        tags = [tag for tag in raw["tags"] if isinstance(tag, str) and re.search(r"^[^,]+$", tag)]
        metadata["tags"] = list(dict.fromkeys(tags))
    return metadata, invalid


def _is_tags(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        return False
    return len(set(value)) == len(value) and all(re.search(r"^[^,]+$", tag) for tag in value)


def _is_execution(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


_Checks = dict[str, Callable[[Any], bool]]
_CELL_CHECKS: _Checks = {
    "name": lambda value: isinstance(value, str) and re.search(r"^.+$", value) is not None,
    "tags": _is_tags,
    "jupyter": lambda value: isinstance(value, dict),
}
_CHECKS_OF_KIND: dict[str, _Checks] = {
    "code": {
        "execution": _is_execution,
        "collapsed": lambda value: isinstance(value, bool),
        "scrolled": lambda value: isinstance(value, bool) or value == "auto",
    },
    "markdown": {},
    "raw": {"format": lambda value: isinstance(value, str)},
}
