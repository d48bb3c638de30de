"""A stack of JavaScript's with the lines of source it names."""

from __future__ import annotations

import re
from collections.abc import Callable

_FRAME = re.compile(r"^\(?([^()\n]{1,300}?):(\d{1,9})(?::(\d{1,9}))?\)?$")
_VERSION = re.compile(r"\?v=[0-9a-f]{8}(?=[:)\s]|$)")
_NAMED = re.compile(r"(?<= in module ')([^'\n]*)\?v=[0-9a-f]{8}'")  # in a message of the engine's
_LINE = 200  # characters of a line of source
_FRAMES = 30


def plain(message: str) -> str:
    """Without the mark of a version that the engine says with a module's name."""
    return _NAMED.sub(r"\1'", message)


def told(name: str, message: str, stack: str, causes: list[str], source: Callable[[str], str | None]) -> str:
    """The traceback: where it happened, that line, what it was, the stack, what caused it."""
    frames = [_VERSION.sub("", line.rstrip()) for line in stack.splitlines() if line.strip()]
    shown = frames if len(frames) <= _FRAMES else [*frames[:20], f"    ... {len(frames) - 25} more", *frames[-5:]]
    head = name + (f": {message}" if message else "")
    lines = [*_place(stack, source), head, *shown]
    lines += [f"  Caused by: {_VERSION.sub('', each)}" for each in causes]
    return "\n".join(lines)


def _place(stack: str, source: Callable[[str], str | None]) -> list[str]:
    """The topmost line of source that is known, and a caret under the column."""
    for line in stack.splitlines():
        found = _FRAME.match(line.rpartition("at ")[2].strip() if "(" not in line else line[line.rindex("(") :])
        if found is None:
            continue
        file, number, column = found[1], int(found[2]), int(found[3] or 0)
        text = source(file)
        rows = text.splitlines() if text is not None else []
        if not 1 <= number <= len(rows):
            continue
        row = rows[number - 1]
        place = f"{_VERSION.sub('', file)}:{number}"
        if not 1 <= column <= min(len(row) + 1, _LINE):
            return [place, f"    {row[:_LINE]}", ""]
        blank = "".join("\t" if each == "\t" else " " for each in row[: column - 1])
        return [place, f"    {row[:_LINE]}", f"    {blank}^", ""]
    return []
