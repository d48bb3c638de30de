"""References to secrets: what each becomes, and that no value is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quire.capabilities.secrets import Secrets
from quire.core.errors import OperationFailed

ENVIRON = {"KEY": "k-123456", "SHORT": "abc", "EMPTY": "", "QUOTED": 'a"b/c d\\e'}


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("env:KEY", "k-123456"),
        ("Bearer env:KEY", "Bearer k-123456"),
        ("plain", "plain"),
        ("see env:KEY and more", "see env:KEY and more"),
        ("environment:KEY", "environment:KEY"),
        ("https://host/env:KEY", "https://host/env:KEY"),
        ("", ""),
    ],
)
def test_a_reference_is_a_whole_value_or_follows_one_word(given: str, becomes: str) -> None:
    assert Secrets(ENVIRON).resolve(given) == becomes


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("${KEY}", "k-123456"),
        ("${env:KEY}", "k-123456"),
        ("--key=${KEY}!", "--key=k-123456!"),
        ("${NONE:-other}", "other"),
        ("${KEY:-other}", "k-123456"),
        ("${EMPTY:-other}", "other"),
        ("${NONE:-}", ""),
        ("$KEY", "$KEY"),
    ],
)
def test_variables_of_other_clients_files_are_expanded(given: str, becomes: str) -> None:
    assert Secrets(ENVIRON).expand(given) == becomes


@pytest.mark.parametrize("given", ["env:NONE", "env:EMPTY", "Bearer env:NONE", "env:not-a-name"])
def test_a_variable_that_is_not_set_is_named(given: str) -> None:
    with pytest.raises(OperationFailed, match=given.removeprefix("Bearer ")):
        Secrets(ENVIRON).resolve(given)


def test_a_question_of_vs_code_is_answered_with_what_to_do() -> None:
    with pytest.raises(OperationFailed, match="env:NAME"):
        Secrets(ENVIRON).expand("${input:token}")
    with pytest.raises(OperationFailed, match="NONE"):
        Secrets(ENVIRON).expand("${NONE}")


def test_a_file_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\r\n")
    secrets = Secrets({})
    assert secrets.resolve(f"Bearer file:{file}") == "Bearer from a file"
    assert secrets.redact("it says: from a file.") == "it says: [secret]."


def test_a_file_that_cannot_be_a_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text("x" * 70_000)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("empty", "empty"),
        ("large", "64 KB"),
        ("bytes", "not text"),
        ("none", "No such file"),
        (".", "is no file"),
        ("pipe", "is no file"),
    ):
        with pytest.raises(OperationFailed, match=words):
            Secrets({}).resolve(f"file:{tmp_path / name}")
    with pytest.raises(OperationFailed, match="full path"):
        Secrets({}).resolve("file:token")


def test_what_was_resolved_is_hidden_in_whatever_form() -> None:
    secrets = Secrets(ENVIRON)
    secrets.resolve("env:QUOTED")
    for form in ('a"b/c d\\e', 'a\\"b/c d\\\\e', "a%22b%2Fc%20d%5Ce"):
        assert secrets.redact(f"<{form}>") == "<[secret]>"
    assert secrets.redact("nothing of it") == "nothing of it"


def test_each_line_of_a_secret_is_hidden() -> None:
    secrets = Secrets({"PEM": "-----BEGIN\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END"})
    secrets.resolve("env:PEM")
    assert secrets.redact("error in MIIEvQIBADAN") == "error in [secret]"


def test_what_a_value_says_is_not_looked_up_again() -> None:
    secrets = Secrets({"A": "env:B", "B": "b-secret", "C": "${B}"})
    given = {"one": "env:A", "two": "${A}", "three": "env:C", "four": "${C}", "five": "Bearer ${B}"}
    assert list(secrets.resolve_all(given).values()) == ["env:B", "env:B", "${B}", "${B}", "Bearer b-secret"]


def test_data_keeps_what_is_too_short_to_be_told_from_chance() -> None:
    secrets = Secrets({"PIN": "1234", "KEY": "k-123456"})
    secrets.resolve("env:PIN")
    assert secrets.redact_data({"n": ["1234"]}) == {"n": ["1234"]}
    assert secrets.redact("pin 1234") == "pin [secret]"
    secrets.resolve("env:KEY")
    assert secrets.redact_data({"k-123456": ["xk-123456x", 5, None, "1234"]}) == {
        "[secret]": ["x[secret]x", 5, None, "1234"]
    }


def test_a_value_given_as_it_is_is_hidden_where_its_name_tells() -> None:
    secrets = Secrets({})
    given = {"API_KEY": "plain-value", "MODE": "production", "Authorization": "Basic dXNlcjpwYXNz"}
    assert secrets.resolve_all(given) == given
    assert secrets.redact("plain-value, dXNlcjpwYXNz in production") == "[secret], [secret] in production"


def test_secrets_of_a_command_and_of_an_address_are_hidden() -> None:
    secrets = Secrets({})
    secrets.hide_in(("run", "--api-key", "first-1", "--token=second-2", "--mode", "dark"), "")
    secrets.hide_in((), "https://user:third%2F3@host/mcp?api_key=fourth-4&page=many")
    said = secrets.redact("first-1 second-2 third/3 third%2F3 fourth-4 dark many --mode")
    assert said == "[secret] [secret] [secret] [secret] [secret] dark many --mode"
