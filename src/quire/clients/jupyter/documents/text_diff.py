"""What to replace in a text to make it another one, as little as possible, so that a cursor in it stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

LONGEST = 4000  # lines; with more, only beginning and end are compared


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """`text` for what stands between two offsets of the old text, in bytes of UTF-8, as pycrdt counts."""

    start: int
    end: int
    text: str


def replacements(old: str, new: str) -> list[Replacement]:
    """Last first, so that each is right when those before it in the list are done."""
    found = []
    for at, before, after in differing_lines(old, new):
        start, end = unlike(before, after)
        if start < len(before) - end or start < len(after) - end:
            first = at + len(before[:start].encode())
            last = at + len(before[: len(before) - end].encode())
            found.append(Replacement(start=first, end=last, text=after[start : len(after) - end]))
    return found[::-1]


def differing_lines(old: str, new: str) -> Iterator[tuple[int, str, str]]:
    """The offset in bytes, what is there, and what should be."""
    ours, theirs = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(ours) > LONGEST or len(theirs) > LONGEST:
        yield 0, old, new
        return
    offsets = [0]
    for line in ours:
        offsets.append(offsets[-1] + len(line.encode()))
    for tag, a, b, c, d in SequenceMatcher(a=ours, b=theirs, autojunk=False).get_opcodes():
        if tag == "replace" and b - a == d - c:
            for place in range(b - a):
                yield offsets[a + place], ours[a + place], theirs[c + place]
        elif tag != "equal":
            yield offsets[a], "".join(ours[a:b]), "".join(theirs[c:d])


def unlike(before: str, after: str) -> tuple[int, int]:
    """How many characters are the same at the beginning, and at the end."""
    shorter = min(len(before), len(after))
    start = next((place for place in range(shorter) if before[place] != after[place]), shorter)
    rest = shorter - start
    end = next((place for place in range(rest) if before[-1 - place] != after[-1 - place]), rest)
    return start, end
