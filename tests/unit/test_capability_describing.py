"""Capabilities in words."""

from __future__ import annotations

from typing import Any

import pytest

from quire.core.capabilities.description import describe, merge_entries, search, summary
from quire.core.errors import NotFound

MAIL: dict[str, Any] = {
    "name": "mail",
    "about": "Mail of a person. Use search first.\n\nMore.",
    "tools": [
        {
            "name": "search-mail",
            "description": "Find messages. Newest first.",
            "input": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
            "output": None,
            "hints": {"readOnlyHint": True},
        },
        {"name": "send", "description": "Send a message.", "input": {"type": "object"}, "output": None, "hints": {}},
    ],
    "resources": False,
    "prompts": False,
}
NOTES = {
    "name": "notes",
    "about": "Keeps notes.",
    "approve": "never",
    "expose": False,
    "methods": [{"name": "add", "description": "Keep a note.", "signature": "add(text: str) -> int", "input": {}}],
}
EVERY = merge_entries([MAIL], [NOTES])


def many(count: int) -> dict[str, Any]:
    """A capability with so many methods that they do not fit into one answer in full."""
    words = {**MAIL["tools"][0], "description": "Find messages. " + "Of any person. " * 20}
    return {**MAIL, "tools": [{**words, "name": f"search_{number}"} for number in range(count)]}


def test_an_installation_says_a_line_of_each_method() -> None:
    assert summary(EVERY[0]).splitlines() == [
        "mail: Mail of a person",
        "  search_mail(query: str) -> Text  # Find messages",
        "  send() -> Text  # Send a message",
    ]


def test_a_description_says_more_than_the_installation() -> None:
    said = describe(EVERY, "mail", None)
    assert said.startswith(
        "mail: Mail of a person. Use search first.\n\nMore.\n\n---\nmail.search_mail(query: str) -> Text"
    )
    assert "Newest first." in said and "Parameters\n    query: str" in said and "mail.send() -> Text" in said
    assert not set(summary(EVERY[0]).splitlines()) & set(said.splitlines())


def test_many_methods_are_named_by_the_installation_and_then_a_line_each() -> None:
    installed, said = summary(many(200)), describe([many(200)], "mail", None)
    assert installed.startswith("It has 200 methods: search_0, search_1, ") and len(installed) < 4_000
    assert "describe_capability" in installed and "search_capabilities" in installed
    lines = said.splitlines()
    assert lines[:2] == ["mail: 200 methods", "  search_0(query: str) -> Text  # Find messages"]
    assert "Use search first." in said
    assert lines[-1].startswith("describe_capability(name='mail', method=...) shows one in full")
    assert len(said) < 16_000


@pytest.mark.parametrize("name", ["search_mail", "search-mail"])
def test_one_method_by_either_name(name: str) -> None:
    said = describe(EVERY, "mail", name)
    assert said.startswith("mail.search_mail(query: str) -> Text") and "Newest first." in said
    assert "It only reads." in said
    assert describe(EVERY, f"mail.{name}", None) == said


def test_a_native_one_is_described_alike() -> None:
    assert summary(EVERY[1]).endswith("add(text: str) -> int  # Keep a note")
    assert "notes.add(text: str) -> int\n\nKeep a note." in describe(EVERY, "notes", None)
    assert "Keep a note." in describe(EVERY, "notes", "add")


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("mial", None, ["'mial'", "Did you mean mail?", "mail, notes", "install_capability"]),
        ("mail", "serch_mail", ["'serch_mail'", "Did you mean search_mail?"]),
        ("mail", "zzz", ["'zzz'", "It has search_mail, send.", "search_capabilities"]),
    ],
)
def test_what_is_not_there_is_said_with_what_is(name: str, method: str | None, words: list[str]) -> None:
    with pytest.raises(NotFound) as missing:
        describe(EVERY, name, method)
    assert [word for word in words if word not in str(missing.value)] == []


def test_without_any_it_says_none() -> None:
    with pytest.raises(NotFound, match=r"There are none\. install_capability adds one\."):
        describe([], "mail", None)


def test_searching_finds_over_all_with_names_as_they_are_called() -> None:
    assert search(EVERY, "find message", 5)[0] == "mail.search_mail(query: str) -> Text  # Find messages"
    assert search(EVERY, "keep note", 1) == ["notes.add(text: str) -> int  # Keep a note"]
    assert search(EVERY, "zzzz qqqq", 5) == [] and search([], "mail", 5) == []


def test_two_tools_that_are_alike_in_python_are_both_found() -> None:
    twins = {**MAIL, "tools": [{"name": each, "description": "Twin."} for each in ("get-sum", "get_sum", "get sum")]}
    found = search([twins], "twin", 5)
    assert len(found) == 3 and len({line.split("(")[0] for line in found}) == 3


def test_one_of_the_notebooks_own_stands_before_an_installed_one_of_its_name() -> None:
    own = {**NOTES, "name": "mail"}
    both = merge_entries([MAIL], [own])
    assert describe(both, "mail", None).splitlines()[0] == "mail: Keeps notes."
    assert search(both, "find messages", 5) == []
    assert search(both, "keep a note", 5) == ["mail.add(text: str) -> int  # Keep a note"]
