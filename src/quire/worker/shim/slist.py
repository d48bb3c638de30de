"""Lines of a command's output: a list that can also be had as text, as paths, by pattern and by column."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


class SList(list[Any]):
    """`.l` the list, `.n` its lines as one text, `.s` joined by blanks, `.p` the paths that exist."""

    @property
    def list(self) -> SList:
        return self

    @property
    def nlstr(self) -> str:
        return "\n".join(self)

    @property
    def spstr(self) -> str:
        return " ".join(self)

    @property
    def paths(self) -> Any:
        return [Path(each) for each in self if each and Path(each).exists()]

    l = list  # noqa: E741 - the name people use
    n = nlstr
    s = spstr
    p = paths

    def grep(self, pattern: str | Callable[[Any], Any], prune: bool = False, field: int | None = None) -> SList:
        """The lines (or of each the field) that the pattern is in, whatever the case; with `prune` the others."""

        def target(line: Any) -> Any:
            if field is None:
                return line
            parts = line.split()
            return parts[field] if -len(parts) <= field < len(parts) else ""

        if isinstance(pattern, str):
            found = re.compile(pattern, re.IGNORECASE).search
            return SList([line for line in self if bool(found(target(line))) != prune])
        return SList([line for line in self if bool(pattern(target(line))) != prune])

    def fields(self, *fields: int) -> Any:
        """Of each line the words at these places; without places, all its words."""
        words = [line.split() for line in self]
        if not fields:
            return words
        chosen = [[each[field] for field in fields if -len(each) <= field < len(each)] for each in words]
        return SList([" ".join(each) for each in chosen if each])

    def sort(self, field: int | None = None, nums: bool = False, **given: Any) -> Any:
        """A sorted copy, by a column and as numbers where asked."""

        def key(line: str) -> Any:
            words = line.split()
            text = line if field is None else words[field] if field < len(words) else ""
            if not nums:
                return text
            digits = "".join(each for each in text if each.isdigit())
            return int(digits) if digits else 0

        return SList(sorted(self, key=key))
