"""Finds small replacements that turn one text into another, so that cursors outside them stay in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_DIFF_LINES = 4000  # in longer texts only the beginning and the end are compared


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Replace the old text between two offsets by `text`. Offsets are bytes of UTF-8, as in pycrdt."""

    start: int
    end: int
    text: str


def find_replacements(old: str, new: str) -> list[Replacement]:
    """The last replacement comes first, so that offsets stay valid while they are applied in order."""
    changes = []
    for line_offset, before, after in diff_lines(old, new):
        start, end = common_ends(before, after)
        if start < len(before) - end or start < len(after) - end:
            start_byte = line_offset + len(before[:start].encode())
            end_byte = line_offset + len(before[: len(before) - end].encode())
            changes.append(Replacement(start=start_byte, end=end_byte, text=after[start : len(after) - end]))
    return changes[::-1]


def diff_lines(old: str, new: str) -> Iterator[tuple[int, str, str]]:
    """Byte offset, old text and new text of each difference."""
    old_lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(old_lines) > MAX_DIFF_LINES or len(new_lines) > MAX_DIFF_LINES:
        yield 0, old, new
        return
    offsets = [0]
    for line in old_lines:
        offsets.append(offsets[-1] + len(line.encode()))
    matcher = SequenceMatcher(a=old_lines, b=new_lines, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "replace" and old_end - old_start == new_end - new_start:
            for index in range(old_end - old_start):
                yield offsets[old_start + index], old_lines[old_start + index], new_lines[new_start + index]
        elif tag != "equal":
            yield offsets[old_start], "".join(old_lines[old_start:old_end]), "".join(new_lines[new_start:new_end])


def common_ends(before: str, after: str) -> tuple[int, int]:
    """Length of the common prefix and of the common suffix."""
    shorter = min(len(before), len(after))
    start = next((index for index in range(shorter) if before[index] != after[index]), shorter)
    rest = shorter - start
    end = next((index for index in range(rest) if before[-1 - index] != after[-1 - index]), rest)
    return start, end
