"""Tokens in their file: what is kept, who may read it, and that a change counts at once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import Principal
from quire.core.notebooks.access import EVERY_SCOPE
from quire.stores.tokens import FileTokens

ALICE, BOB = Principal("alice"), Principal("bob")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tokens.json"


def test_token_gives_name_and_scopes(path: Path) -> None:
    tokens = FileTokens(path)
    one, two = tokens.add(ALICE, admin=False), tokens.add(BOB, admin=True)
    assert one != two and len(one) > 45
    alice, bob = tokens.find_caller(one), tokens.find_caller(two)
    assert alice and (alice.principal, alice.is_trusted) == (ALICE, False)
    assert bob and (bob.principal, bob.scopes) == (BOB, EVERY_SCOPE)
    for wrong in ("", one[:-1], one + "x", one.lower(), "quire_", "\ud800"):
        assert tokens.find_caller(wrong) is None
    assert [each.caller.principal for each in tokens.list_tokens()] == [ALICE, BOB]


def test_file_has_no_token_and_is_private(path: Path) -> None:
    token = FileTokens(path).add(ALICE, admin=False)
    assert token not in path.read_text() and token.removeprefix("quire_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_changes_of_other_processes_take_effect_at_once(path: Path) -> None:
    server, command = FileTokens(path), FileTokens(path)
    assert server.find_caller("quire_x") is None
    token = command.add(ALICE, admin=False)
    assert server.find_caller(token) is not None
    command.remove(ALICE)
    assert server.find_caller(token) is None
    again = command.add(ALICE, admin=False)
    assert server.find_caller(token) is None and server.find_caller(again) is not None


def test_second_token_of_a_name_is_refused(path: Path) -> None:
    tokens = FileTokens(path)
    token = tokens.add(ALICE, admin=False)
    with pytest.raises(InvalidRequest, match="has a token already"):
        tokens.add(ALICE, admin=True)
    with pytest.raises(NotFound, match="There are: alice"):
        tokens.remove(BOB)
    assert tokens.find_caller(token) is not None


@pytest.mark.parametrize("name", ["local", "a/b", "", "a@b", "../x"])
def test_reserved_names_get_no_token(path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        FileTokens(path).add(Principal(name), admin=False)


@pytest.mark.parametrize("text", ["", "[]", "{", "nonsense"])
def test_damaged_file_accepts_no_token_and_is_not_overwritten(path: Path, text: str) -> None:
    tokens = FileTokens(path)
    token = tokens.add(ALICE, admin=False)
    path.write_text(text)
    assert tokens.find_caller(token) is None
    with pytest.raises(OperationFailed, match="damaged"):
        tokens.add(BOB, admin=False)
    assert path.read_text() == text


def test_edited_file_cannot_name_the_local_user(path: Path) -> None:
    tokens = FileTokens(path)
    token = tokens.add(ALICE, admin=True)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({"local": kept["alice"], "bob": {"sha256": 5}, "carol": "x"}))
    assert tokens.find_caller(token) is None and tokens.list_tokens() == []
