"""Capabilities in words, relayed and native alike: all of one, one method, what fits a question. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from quire.core.errors import NotFound
from quire.wire import tools


def entries(catalog: list[dict[str, Any]], native: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Native ones told as a catalog tells the others, and in place of one of the same name, as code finds them."""
    own = {each["name"] for each in native}
    relayed = [each for each in catalog if each["name"] not in own]
    return [*relayed, *({**each, "tools": each.get("methods", [])} for each in native)]


def describe(every: list[dict[str, Any]], name: str, method: str | None) -> str:
    """All methods of a capability in a line each, or one with all there is to know of it."""
    entry = next((each for each in every if each["name"] == name), None)
    if entry is None:
        known = ", ".join(each["name"] for each in every) or "none"
        raise NotFound(f"There is no capability {name!r}; there are: {known}.")
    if method is None:
        return "\n\n".join(filter(None, (tools.overview(entry), str(entry.get("about") or "").strip())))
    methods = tools.methods(entry)
    found = method if method in methods else next((py for py, tool in methods.items() if tool["name"] == method), None)
    if found is None:
        near = difflib.get_close_matches(method, methods, n=3) or list(methods)[:10]
        raise NotFound(f"{name} has no method {method!r}; near it: {', '.join(near) or 'none'}.")
    return tools.document(name, methods[found], found)


def search(every: list[dict[str, Any]], query: str, limit: int) -> list[str]:
    """Signature and one line of the best, best first."""
    by_name = {entry["name"]: entry for entry in every}
    lines = []
    for capability, tool in tools.search(every, query, limit):
        name = next(py for py, each in tools.methods(by_name[capability]).items() if each is tool)
        lines.append(f"{capability}.{tools.line(tool, name)}")
    return lines
