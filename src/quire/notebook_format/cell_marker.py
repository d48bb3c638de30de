"""Parses and writes the line that starts a cell of a script: `# %% a title [markdown] tags=["a"]`."""

from __future__ import annotations

import json
import re
from typing import Any

from quire.core.model import CellKind

_MARKER = re.compile(r"#[ \t]*%%(%*)(?:\s+(.*?))?\s*$|#[ \t]*(?:In\[[\d ]*\]:?|<codecell>)\s*$")
_KEY = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)
_KINDS = {"markdown": CellKind.MARKDOWN, "md": CellKind.MARKDOWN, "raw": CellKind.RAW}
_TITLE = re.compile(r"[^\[\]{}=%\s](?: ?[^\[\]{}=%\s])*")
_RUN_METADATA = ("execution", "ExecuteTime")  # metadata that changes with every run
_MAX_DEPTH = 9  # Spyder has nested cells


def is_marker(line: str) -> bool:
    return _MARKER.match(line) is not None


def parse(line: str) -> tuple[CellKind, dict[str, Any]]:
    """The kind and metadata of the cell."""
    found = _MARKER.match(line)
    depth, options = (found[1] or "", found[2] or "") if found else ("", "")
    title, metadata = _split_options(options)
    kind = CellKind.CODE
    for word, marked_kind in _KINDS.items():
        if f"[{word}]" in title:
            kind, title = marked_kind, title.replace(f"[{word}]", "", 1).strip()
            break
    if title:
        metadata = {"title": title, **metadata}
    return kind, {"cell_depth": len(depth), **metadata} if depth else metadata


def format_marker(kind: CellKind, metadata: dict[str, Any]) -> str:
    remaining = {key: value for key, value in metadata.items() if key not in _RUN_METADATA}
    words = []
    depth = remaining.get("cell_depth")
    if isinstance(depth, int) and not isinstance(depth, bool) and 0 < depth <= _MAX_DEPTH:
        del remaining["cell_depth"]
        words.append("# %%" + "%" * depth)
    else:
        words.append("# %%")
    title = remaining.get("title")
    if isinstance(title, str) and _TITLE.fullmatch(title):
        words.append(remaining.pop("title"))
    if kind is not CellKind.CODE:
        words.append(f"[{kind.value}]")
    if all(_KEY.fullmatch(key) for key in remaining):
        words += [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in remaining.items()]
    else:
        words.append(json.dumps(remaining, ensure_ascii=False))
    return " ".join(words)


def _split_options(text: str) -> tuple[str, dict[str, Any]]:
    """Title and metadata. Metadata is key=value pairs or an object; everything else belongs to the title."""
    start = re.search(r"(?:^|(?<=\s))(?:\{|[A-Za-z_][\w.\-]*=)", text)
    if start is None:
        return text, {}
    title, rest = text[: start.start()].strip(), text[start.start() :]
    metadata = _parse_object(rest) if rest.startswith("{") else _parse_pairs(rest)
    return (text, {}) if metadata is None else (title, metadata)


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _parse_pairs(text: str) -> dict[str, Any] | None:
    pairs: dict[str, Any] = {}
    while text:
        key = _KEY.match(text)
        if key is None or text[key.end() : key.end() + 1] != "=":
            return None
        try:
            value, end = json.JSONDecoder().raw_decode(text, key.end() + 1)
        except (ValueError, RecursionError):
            return None
        pairs[key[0]] = value
        text = text[end:].lstrip()
    return pairs
