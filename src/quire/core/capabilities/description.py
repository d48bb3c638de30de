"""Descriptions of capabilities, installed and native, for agents. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from quire.core.errors import NotFound
from quire.tool_descriptions import tools

_MAX_FULL_CHARS = 12_000  # of all methods in full, in one answer
_SEPARATOR = "\n\n---\n"
_MAX_NAMED_METHODS = 20  # in an error message


def merge_entries(catalog: list[dict[str, Any]], native: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All entries in the form of a catalog. A native one hides an installed one of the same name, as in code."""
    own = {entry["name"] for entry in native}
    relayed = [entry for entry in catalog if entry["name"] not in own]
    return [*relayed, *({**entry, "tools": entry.get("methods", [])} for entry in native)]


def summary(entry: dict[str, Any]) -> str:
    """One line for each method; only the names if there are many."""
    if _full_documentation(entry) is not None:
        return tools.overview(entry)
    names = list(tools.methods(entry))
    return (
        f"It has {len(names)} methods: {', '.join(names)}\n"
        "describe_capability shows a line for each, or one in full; search_capabilities finds one."
    )


def describe(entries_: list[dict[str, Any]], name: str, method: str | None) -> str:
    """A capability in more detail than `summary`, or one method in full."""
    entry = next((entry_ for entry_ in entries_ if entry_["name"] == name), None)
    first, _, last = name.partition(".")
    if entry is None and method is None and last and any(entry_["name"] == first for entry_ in entries_):
        return describe(entries_, first, last)
    if entry is None:
        raise NotFound(_no_capability(name, [entry_["name"] for entry_ in entries_]))
    methods = tools.methods(entry)
    if method is None:
        about = str(entry.get("about") or "").strip()
        whole = _full_documentation(entry)
        if whole is not None:
            return _SEPARATOR.join(filter(None, (f"{name}: {about}" if about else name, *whole)))
        lines = [f"  {tools.summary_line(tool, python)}" for python, tool in methods.items()]
        hint = f"describe_capability(name={name!r}, method=...) shows one in full; search_capabilities finds one."
        return "\n\n".join(filter(None, ("\n".join([f"{name}: {len(lines)} methods", *lines]), about, hint)))
    found = method if method in methods else next((py for py, tool in methods.items() if tool["name"] == method), None)
    if found is None:
        raise NotFound(_no_method(name, method, list(methods)))
    return tools.documentation(name, methods[found], found)


def _full_documentation(entry: dict[str, Any]) -> list[str] | None:
    """All methods in full, without repeated notes; None if that is too long for one answer."""
    found, size, returns = list[str](), 0, f"\n\n{tools.RETURNS_TEXT}"
    for python, tool in tools.methods(entry).items():
        found.append(tools.documentation(str(entry["name"]), tool, python))
        size += len(found[-1].replace(returns, ""))
        if size > _MAX_FULL_CHARS:
            return None
    if sum(returns in text for text in found) > 1:
        found = [text.replace(returns, "") for text in found]
        found.append(f"A method that returns Text: {tools.RETURNS_TEXT[:1].lower()}{tools.RETURNS_TEXT[1:]}")
    return found


def _no_capability(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    message = f"There is no capability {name!r}. {f'Did you mean {near[0]}? ' if near else ''}"
    message += f"There are: {', '.join(known)}." if known else "There are none."
    return f"{message} install_capability adds one."


def _no_method(name: str, method: str, known: list[str]) -> str:
    near = difflib.get_close_matches(method, known, n=3)
    if near:
        return f"{name} has no method {method!r}. Did you mean {' or '.join(near)}?"
    more = f" and {len(known) - _MAX_NAMED_METHODS} more" if len(known) > _MAX_NAMED_METHODS else ""
    there = f"It has {', '.join(known[:_MAX_NAMED_METHODS])}{more}." if known else "It has none."
    return f"{name} has no method {method!r}. {there} search_capabilities finds a method by what it does."


def search(entries_: list[dict[str, Any]], query: str, limit: int) -> list[str]:
    """Signature and first sentence of the best matches, best first."""
    by_name = {entry["name"]: entry for entry in entries_}
    lines = []
    for capability, tool in tools.search(entries_, query, limit):
        name = next(py for py, candidate in tools.methods(by_name[capability]).items() if candidate is tool)
        lines.append(f"{capability}.{tools.summary_line(tool, name)}")
    return lines
