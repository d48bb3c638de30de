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


def test_a_token_proves_its_name_and_scopes(path: Path) -> None:
    tokens = FileTokens(path)
    one, two = tokens.add(ALICE, admin=False), tokens.add(BOB, admin=True)
    assert one != two and len(one) > 45
    alice, bob = tokens.whose(one), tokens.whose(two)
    assert alice and (alice.principal, alice.is_trusted) == (ALICE, False)
    assert bob and (bob.principal, bob.scopes) == (BOB, EVERY_SCOPE)
    for wrong in ("", one[:-1], one + "x", one.lower(), "quire_", "\ud800"):
        assert tokens.whose(wrong) is None
    assert [each.caller.principal for each in tokens.all()] == [ALICE, BOB]


def test_the_file_holds_no_token_and_is_its_owners_alone(path: Path) -> None:
    token = FileTokens(path).add(ALICE, admin=False)
    assert token not in path.read_text() and token.removeprefix("quire_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_what_another_process_changes_counts_at_once(path: Path) -> None:
    server, command = FileTokens(path), FileTokens(path)
    assert server.whose("quire_x") is None
    token = command.add(ALICE, admin=False)
    assert server.whose(token) is not None
    command.remove(ALICE)
    assert server.whose(token) is None
    again = command.add(ALICE, admin=False)
    assert server.whose(token) is None and server.whose(again) is not None


def test_a_name_has_one_token(path: Path) -> None:
    tokens = FileTokens(path)
    token = tokens.add(ALICE, admin=False)
    with pytest.raises(InvalidRequest, match="has a token already"):
        tokens.add(ALICE, admin=True)
    with pytest.raises(NotFound, match="There are: alice"):
        tokens.remove(BOB)
    assert tokens.whose(token) is not None


@pytest.mark.parametrize("name", ["local", "a/b", "", "a@b", "../x"])
def test_no_token_is_for_a_name_that_is_not_the_operators_to_give(path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        FileTokens(path).add(Principal(name), admin=False)


@pytest.mark.parametrize("text", ["", "[]", "{", "nonsense"])
def test_damaged_file_lets_no_user_in_and_is_not_overwritten(path: Path, text: str) -> None:
    tokens = FileTokens(path)
    token = tokens.add(ALICE, admin=False)
    path.write_text(text)
    assert tokens.whose(token) is None
    with pytest.raises(OperationFailed, match="damaged"):
        tokens.add(BOB, admin=False)
    assert path.read_text() == text


def test_entry_written_by_hand_does_not_give_the_local_users_name(path: Path) -> None:
    tokens = FileTokens(path)
    token = tokens.add(ALICE, admin=True)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({"local": kept["alice"], "bob": {"sha256": 5}, "carol": "x"}))
    assert tokens.whose(token) is None and tokens.all() == []
