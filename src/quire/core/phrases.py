"""Parts of messages: a counted noun, the name most similar to one that does not exist. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches

_COMPARED = 20  # names that are compared exactly: that takes long, and there may be thousands
_LISTED = 20  # names in a message


def count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The most similar of these names, else the last that has all its words; None where none is similar."""
    matcher = SequenceMatcher(b=name.lower())

    def likeness(other: str) -> float:
        matcher.set_seq1(other.lower())
        return matcher.quick_ratio()

    likely = {other.lower(): other for other in reversed(heapq.nlargest(_COMPARED, names, key=likeness))}
    found = get_close_matches(name.lower(), likely, n=1)
    return likely[found[0]] if found else _with_words_of(name, names)


def _with_words_of(name: str, names: Sequence[str]) -> str | None:
    wanted = _words(name)
    return next((other for other in reversed(names) if wanted and wanted <= _words(other)), None)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", name.lower()))


def suggestion(name: str, names: Sequence[str]) -> str:
    """A sentence with the most similar name, after a blank; "" where none is similar."""
    near = nearest(name, names)
    return f" The nearest is {near!r}." if near is not None else ""


def existing(name: str, names: Sequence[str]) -> str:
    """What a message says where nothing has this name: the newest names, which are the last, and the most similar."""
    if not names:
        return "There are none yet."
    older = f" and {count(len(names) - _LISTED, 'older one')}" if len(names) > _LISTED else ""
    return f"There are: {', '.join(names[-_LISTED:])}{older}.{suggestion(name, names)}"
