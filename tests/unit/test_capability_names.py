"""What a capability may be called, and which other name is proposed."""

from __future__ import annotations

import pytest

from quire.core.capabilities.names import OURS, check, proposal
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
    check(name, [])


@pytest.mark.parametrize("name", [*ODD, *sorted(OURS), "taken"])
def test_any_other_is_refused_with_one_that_is_fine(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check(name, ["taken"])
    offered = proposal(name, ["taken"])
    check(offered, ["taken"])
    assert repr(offered) in str(refused.value)


def test_proposals_are_like_the_name() -> None:
    found = [proposal(name, []) for name in ("my-server", "server-everything", "print", "1st", "@scope/name", "日本")]
    assert found == ["my_server", "server_everything", "print_server", "s1st", "scope_name", "server"]


def test_a_proposal_is_counted_on_where_it_is_taken() -> None:
    taken = {"mail", "mail_server", *(f"mail_{n}" for n in range(2, 7))}
    assert proposal("mail", taken) == "mail_7"


def test_among_very_many_there_is_still_a_name() -> None:
    taken = {"mail", "mail_server", *(f"mail_{n}" for n in range(2, 200)), "my_server"}
    check(proposal("mail", taken), taken)
