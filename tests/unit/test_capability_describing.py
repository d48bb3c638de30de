"""Capabilities in words."""

from __future__ import annotations

import pytest

from quire.core.describing import describe, entries, search
from quire.core.errors import NotFound

MAIL = {
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
EVERY = entries([MAIL], [NOTES])


def test_all_of_one_is_a_line_each_and_its_instructions() -> None:
    lines = describe(EVERY, "mail", None).splitlines()
    assert lines[0] == "mail: Mail of a person"
    assert lines[1:3] == ["  search_mail(query: str) -> Text  # Find messages", "  send() -> Text  # Send a message"]
    assert lines[-1] == "More."


@pytest.mark.parametrize("name", ["search_mail", "search-mail"])
def test_one_method_by_either_name(name: str) -> None:
    said = describe(EVERY, "mail", name)
    assert said.startswith("mail.search_mail(query: str) -> Text") and "Newest first." in said
    assert "It only reads." in said


def test_a_native_one_is_described_alike() -> None:
    assert "add(text: str) -> int  # Keep a note" in describe(EVERY, "notes", None)
    assert "Keep a note." in describe(EVERY, "notes", "add")


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("mial", None, ["'mial'", "mail, notes"]),
        ("mail", "serch_mail", ["'serch_mail'", "search_mail"]),
        ("mail", "zzz", ["'zzz'", "search_mail", "send"]),
    ],
)
def test_what_is_not_there_is_said_with_what_is(name: str, method: str | None, words: list[str]) -> None:
    with pytest.raises(NotFound) as missing:
        describe(EVERY, name, method)
    assert [word for word in words if word not in str(missing.value)] == []


def test_without_any_it_says_none() -> None:
    with pytest.raises(NotFound, match="none"):
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
    both = entries([MAIL], [own])
    assert describe(both, "mail", None).splitlines()[0] == "mail: Keeps notes"
    assert search(both, "find messages", 5) == []
    assert search(both, "keep a note", 5) == ["mail.add(text: str) -> int  # Keep a note"]
