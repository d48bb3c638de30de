"""Search the tools of all capabilities by words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from quire.tool_descriptions import schemas

_Offer = tuple[str, dict[str, Any]]  # name of the capability, tool

_WORD = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MAX_CHARS = 2_000  # of a description that are searched
_SUMMARY_CHARS = 100
_MAX_QUERY_WORDS = 30  # of a query
_STOP_WORD_LIST = "a all an and as at by can do for from how i in is it me my of on or that the this to with"
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
_NAME, _CAPABILITY, _FIRST, _REST, _PARAMETER = 5.0, 2.5, 2.0, 1.0, 1.2  # weights of a word by its place
_PREFIX_FACTOR, _SUBSTRING_FACTOR = 0.7, 0.45  # relative to an exact match


def best_matches(offered: Iterable[_Offer], query: Any, limit: int) -> list[_Offer]:
    """The best matches for the query in name, description and parameters, best first."""
    text = query[:_MAX_CHARS] if isinstance(query, str) else ""
    wanted = list(dict.fromkeys(search_words(text)))[:_MAX_QUERY_WORDS]
    candidates = [(name, tool, _weights(name, tool)) for name, tool in offered]
    seen = Counter(word for _, _, weights in candidates for word in weights)
    scored = []
    for at, (name, tool, weights) in enumerate(candidates):
        score = _score(wanted, weights, seen, len(candidates))
        if score > 0:
            scored.append((-score, at, name, tool))
    scored.sort(key=lambda match: match[:2])
    return [(name, tool) for _, _, name, tool in scored[: max(0, limit)]]


def search_words(text: Any) -> list[str]:
    """The stems of words in lower case, without stop words unless there are no others."""
    if not isinstance(text, str):
        return []
    found = [word.lower() for word in _WORD.findall(_HUMPS.sub(" ", text))]
    meaningful = [word for word in found if word not in _STOP_WORDS]
    return [stem(word) for word in meaningful or found]


def stem(word: str) -> str:
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ied", "y"), ("ed", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + instead
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _weights(capability: str, tool: dict[str, Any]) -> dict[str, float]:
    """Each word of a tool with its highest weight."""
    description = tool.get("description")
    description = description[:_MAX_CHARS] if isinstance(description, str) else ""
    found: dict[str, float] = {}
    for text, weight in (
        (tool.get("name"), _NAME),
        (capability, _CAPABILITY),
        (description[:_SUMMARY_CHARS], _FIRST),
        (" ".join(schemas.properties(tool.get("input"), tool.get("input"))), _PARAMETER),
        (description, _REST),
    ):
        for word in search_words(text):
            found[word] = max(found.get(word, 0.0), weight)
    return found


def _score(wanted: list[str], weights: dict[str, float], seen: Counter[str], tool_count: int) -> float:
    total, matched = 0.0, 0
    for word in wanted:
        best = 0.0
        for other, weight in weights.items():
            likeness = _similarity(word, other)
            if likeness:
                rare = math.log(1 + tool_count / seen[other])
                best = max(best, weight * likeness * (0.5 + rare))
        total += best
        matched += best > 0
    return total * matched / len(wanted) if wanted else 0.0


def _similarity(word: str, other: str) -> float:
    if word == other:
        return 1.0
    short, long = sorted((word, other), key=len)
    if len(short) >= 3 and long.startswith(short):
        return _PREFIX_FACTOR
    return _SUBSTRING_FACTOR if len(short) >= 4 and short in long else 0.0
