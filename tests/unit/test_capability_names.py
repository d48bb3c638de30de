"""What a capability may be called, and which other name is proposed."""

from __future__ import annotations

import pytest

from quire.core.capabilities.names import RESERVED_NAMES, check_name, suggest_name
from quire.core.errors import InvalidRequest

ODD = [
    "",
    " ",
    "-",
    "1",
    "a-b",
    "class",
    "None",
    "print",
    "caps",
    "_",
    "__x__",
    "größe",
    "日本",
    "a" * 500,
    "x\n",
    "9" * 99,
]


@pytest.mark.parametrize("name", ["gmail", "g", "my_server2", "CamelCase", "a" * 60, "match", "type_"])
def test_a_python_name_is_fine(name: str) -> None:
    check_name(name, [])


@pytest.mark.parametrize("name", [*ODD, *sorted(RESERVED_NAMES), "taken"])
def test_any_other_is_refused_with_one_that_is_fine(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_name(name, ["taken"])
    offered = suggest_name(name, ["taken"])
    check_name(offered, ["taken"])
    assert repr(offered) in str(refused.value)


def test_proposals_are_like_the_name() -> None:
    names = ("my-server", "server-everything", "print", "1st", "@scope/name", "日本")
    found = [suggest_name(name, []) for name in names]
    assert found == ["my_server", "server_everything", "print_server", "s1st", "scope_name", "server"]


def test_a_proposal_is_counted_on_where_it_is_taken() -> None:
    taken = {"mail", "mail_server", *(f"mail_{n}" for n in range(2, 7))}
    assert suggest_name("mail", taken) == "mail_7"


def test_among_very_many_there_is_still_a_name() -> None:
    taken = {"mail", "mail_server", *(f"mail_{n}" for n in range(2, 200)), "my_server"}
    check_name(suggest_name("mail", taken), taken)
