"""Truncate long results and keep the rest for a while, so that code can read it in parts."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any
from uuid import uuid4

from quire.core.capabilities.model import Result
from quire.core.errors import NotFound
from quire.core.model import NotebookId

_MAX_STORED_CHARS = 64 << 20  # of all texts; least recently used ones are dropped
_MAX_BINARY_CHARS = 8 << 20  # of one image or audio as base64
_MEASURED_FROM_BYTES = 4_096  # shorter texts are not measured


class TruncatedResults:
    def __init__(self, limit: int) -> None:
        self._limit = limit  # characters
        self._texts: OrderedDict[str, tuple[NotebookId, str]] = OrderedDict()
        self._size = 0

    def fit(self, notebook: NotebookId, result: Result) -> dict[str, Any]:
        """The result as JSON, truncated."""
        fitting = {"content": [self.fit_text(notebook, block) for block in result.content]}
        if result.structured is None:
            return fitting
        text = "" if _is_small(result.structured) else json.dumps(result.structured, ensure_ascii=False)
        if len(text) <= self._limit:
            return {**fitting, "structured": result.structured}
        others = [block for block in fitting["content"] if block.get("type") != "text"]
        return {"content": [self.fit_text(notebook, {"type": "text", "text": text}), *others]}

    def fit_text(self, notebook: NotebookId, block: dict[str, Any]) -> dict[str, Any]:
        """One block of content or of a resource, truncated."""
        if isinstance(block.get("resource"), dict):
            return {**block, "resource": self.fit_text(notebook, block["resource"])}
        text = block.get("text")
        if isinstance(text, str) and len(text) > self._limit:
            key = self._keep(notebook, text)
            return {**block, "text": text[: self._limit], "rest": key, "size": len(text)}
        for name in ("data", "blob"):
            data = block.get(name)
            if isinstance(data, str) and len(data) > _MAX_BINARY_CHARS:
                size = len(data) * 3 // 4
                notice = f"[{block.get('mimeType', 'data')} of {size:,} bytes: too large to be handed to a cell]"
                rest = {key: value for key, value in block.items() if key not in ("data", "blob")}
                return {**rest, "type": "text", "text": notice}
        return block

    def part(self, notebook: NotebookId, key: str, start: int) -> dict[str, Any]:
        """The next part of a truncated text. Raises NotFound if it was dropped."""
        owner, text = self._texts.get(key, (None, ""))
        if owner != notebook:
            raise NotFound("The rest of that answer is not kept any more. Call the tool again.")
        self._texts.move_to_end(key)
        end = max(start, 0) + self._limit
        return {"text": text[max(start, 0) : end], "more": end < len(text)}

    def _keep(self, notebook: NotebookId, text: str) -> str:
        key = uuid4().hex
        self._texts[key] = (notebook, text)
        self._size += len(text)
        while self._size > _MAX_STORED_CHARS and len(self._texts) > 1:
            _, (_, dropped) = self._texts.popitem(last=False)
            self._size -= len(dropped)
        return key


def _is_small(value: Any) -> bool:
    """Whether it is within any limit, so that it need not be measured."""
    if isinstance(value, (list, dict)):
        return len(value) == 0
    return not isinstance(value, str) or len(value) < _MEASURED_FROM_BYTES
