"""The description of a backend that a caller gives, as data."""

from __future__ import annotations

from typing import Any

import pytest

from quire.core.capabilities.model import Approve, Backend
from quire.core.capabilities.request import describe_backend, parse_approve, parse_backend, plain_secrets
from quire.core.errors import InvalidRequest

ENTRY = Backend(command=("from", "file"), env={"A": "1"})


def made(**given: Any) -> Backend:
    return parse_backend("name", given, lambda config, name: ENTRY)


@pytest.mark.parametrize(
    ("given", "backend"),
    [
        ({"command": "npx -y 'a b'"}, Backend(command=("npx", "-y", "a b"))),
        ({"command": ["npx", "-y", "a b"]}, Backend(command=("npx", "-y", "a b"))),
        (
            {"command": "a", "env": {"K": "env:K"}, "folder": "/x"},
            Backend(command=("a",), env={"K": "env:K"}, folder="/x"),
        ),
        ({"url": "https://a.test/mcp"}, Backend(url="https://a.test/mcp")),
        ({"url": "http://a.test", "headers": {"X": "1"}}, Backend(url="http://a.test", headers={"X": "1"})),
        (
            {"url": "http://a.test", "auth": "env:GH"},
            Backend(url="http://a.test", headers={"Authorization": "Bearer env:GH"}),
        ),
        (
            {"url": "http://a.test", "auth": "Basic env:GH"},
            Backend(url="http://a.test", headers={"Authorization": "Basic env:GH"}),
        ),
        ({"config": "cursor"}, ENTRY),
        ({"config": "cursor", "env": {"B": "env:B"}}, Backend(command=("from", "file"), env={"A": "1", "B": "env:B"})),
    ],
)
def test_a_backend_is_said_in_one_of_three_ways(given: dict[str, Any], backend: Backend) -> None:
    assert made(**given) == backend


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Got none of them"),
        ({"command": "", "url": ""}, "Got none of them"),
        ({"command": "a", "config": "b"}, "both command and config"),
        ({"command": "a", "urll": "b"}, "There is no urll"),
        ({"command": 5}, "command is a line"),
        ({"command": ["a", 5]}, "command is a line"),
        ({"command": "   "}, "empty"),
        ({"command": "a 'b"}, "cannot be read"),
        ({"command": "a", "env": {"A": 5}}, "env is a dict of texts"),
        ({"command": "a", "env": ["A"]}, "env is a dict of texts"),
        ({"url": "a.test"}, "http://"),
        ({"url": "http://[::1"}, "http://"),
        ({"url": 5}, "http://"),
        ({"url": "file:///etc/passwd"}, "http://"),
        ({"url": "https://me:word@a.test"}, "no password"),
        ({"command": "a", "auth": "env:X"}, "for a url"),
    ],
)
def test_anything_else_is_refused_with_what_to_say(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        made(**given)
    assert words in str(refused.value) and "word@" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "approve"),
    [
        (None, {}),
        ("always", {"*": Approve.ASK_OR_DENY}),
        ({"send": "ask", "*": "never"}, {"send": Approve.ASK, "*": Approve.ALLOW}),
    ],
)
def test_approval_is_one_word_or_one_for_each_method(said: Any, approve: dict[str, Approve]) -> None:
    assert parse_approve({"approve": said}) == approve


@pytest.mark.parametrize("said", ["maybe", ["always"], {"send": "maybe"}, {"send": ["ask"]}, {"send": None}, 5])
def test_another_word_is_refused(said: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse_approve({"approve": said})


def test_what_people_read_has_references_but_no_secret() -> None:
    backend = Backend(
        command=("serve", "--token", "s3cret-word", "--all"),
        env={"KEY": "env:KEY", "PLAIN": "hush-hush"},
        headers={"Authorization": "Bearer file:/run/key", "X": "hush-hush"},
    )
    said = str(describe_backend(backend))
    assert "env:KEY" in said and "Bearer file:/run/key" in said and "--all" in said
    assert "hush-hush" not in said and "s3cret-word" not in said


def test_values_that_look_like_secrets_are_named() -> None:
    env = {"API_KEY": "abc", "GH_TOKEN": "env:GH", "COLOUR": "red", "DB_PASSWORD": "file:/run/pw"}
    assert plain_secrets(Backend(command=("a",), env=env)) == ["API_KEY"]
    assert plain_secrets(Backend(url="u", headers={"Authorization": "Bearer abc"})) == ["Authorization"]
    assert plain_secrets(Backend(url="u", headers={"Authorization": "Bearer env:GH"})) == []
