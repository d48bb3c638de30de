"""Principal names, access to notebooks, and the policy of untrusted callers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.capabilities.model import Backend
from quire.core.errors import InvalidRequest
from quire.core.limits.caller_policy import UntrustedCallerPolicy, is_allowed_host, is_local_name
from quire.core.model import LOCAL, KernelLimits, Notebook, NotebookId, Policy, Principal
from quire.core.notebooks import access
from quire.core.notebooks.access import LOCAL_CALLER, Access, Caller, Scope

ALICE, BOB = Principal("alice"), Principal("bob")
ADMIN = Caller(principal=Principal("root"), scopes=frozenset(Scope))
BOOK = Notebook(id=NotebookId("1"), name="diary", owner=ALICE, runtime="python", created_at=0, seen_as="alice/diary")


@pytest.mark.parametrize(
    ("caller", "shared", "has"),
    [
        (Caller(principal=ALICE), None, Access.OWN),
        (Caller(principal=BOB), None, None),
        (Caller(principal=BOB), Access.READ, Access.READ),
        (Caller(principal=BOB), Access.WRITE, Access.WRITE),
        (ADMIN, None, Access.OWN),
        (LOCAL_CALLER, None, Access.OWN),
        (Caller(principal=LOCAL), None, None),  # code that others may have written is not the local user
    ],
)
def test_access_of_owner_admin_and_shares(caller: Caller, shared: Access | None, has: Access | None) -> None:
    assert access.effective_access(caller, ALICE, shared) == has


def test_access_levels_include_lower_ones() -> None:
    order = [Access.READ, Access.WRITE, Access.OWN]
    for at, has in enumerate(order):
        assert [has.covers(needed) for needed in order] == [place <= at for place in range(3)]
        for place, needed in enumerate(order):
            if place <= at:
                access.check_access(BOOK, has, needed)
            else:
                with pytest.raises(InvalidRequest, match="alice/diary"):
                    access.check_access(BOOK, has, needed)


@pytest.mark.parametrize(
    ("name", "owner", "own"),
    [("diary", None, "diary"), ("alice/diary", "alice", "diary"), ("a|1@id.test~x/main", "a|1@id.test~x", "main")],
)
def test_name_with_and_without_owner_is_parsed(name: str, owner: str | None, own: str) -> None:
    assert access.parse_name(name) == (owner, own)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a@", "@b", "x" * 65, "-a", "a\n", "a@b c", "a@" + "b" * 300])
def test_invalid_user_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        access.check_principal(name)


@pytest.mark.parametrize("name", ["local", "a@b", "", "x/y", "a b", "x" * 65])
def test_token_cannot_be_named_like_the_local_user_or_a_subject(name: str) -> None:
    with pytest.raises(InvalidRequest):
        access.check_token_name(name)


@given(st.text(max_size=140) | st.from_regex(r"[A-Za-z0-9._+|:=@-]{1,128}", fullmatch=True))
def test_subject_never_becomes_the_local_user_or_a_token(subject: str) -> None:
    named = access.issued_principal(subject, "id.test")
    if named is not None:
        assert named.endswith("@id.test") and named != LOCAL and access.check_principal(named) == named
        with pytest.raises(InvalidRequest):
            access.check_token_name(named)


@given(st.text(alphabet="ab@~.", max_size=8), st.text(alphabet="ab@~.", max_size=8))
def test_different_subjects_are_different_principals(one: str, other: str) -> None:
    names = [
        (access.issued_principal(subject, label), subject, label)
        for subject in (one, other)
        for label in ("a.b", "b~a")
    ]
    seen: dict[str, tuple[str, str]] = {}
    for name, subject, label in names:
        if name is not None:
            assert seen.setdefault(name, (subject, label)) == (subject, label)


@pytest.mark.parametrize("subject", [None, 5, "", "a b", "a/b", "é", "x" * 129, "a\n"])
def test_invalid_subject_has_no_principal(subject: Any) -> None:
    assert access.issued_principal(subject, "id.test") is None


def test_issuer_label_is_made_from_its_url() -> None:
    assert access.issuer_label("https://id.test/realms/one/") == "id.test~realms~one"
    for wrong in ("id.test", "ftp://id.test", "https://", "https://id.test/a b", "https://u@id.test"):
        with pytest.raises(InvalidRequest):
            access.issuer_label(wrong)


# What is confined


BOUNDS = UntrustedCallerPolicy(
    hosts=("mcp.home", "10.0.0.5:8080"), limits=KernelLimits(memory=1000, cpu=0, processes=10), output=50_000
)


def described(config: str | dict[str, Any], name: str) -> Backend:
    assert isinstance(config, dict), "a file was looked for"
    return Backend(command=tuple(config.get("command", ())), url=config.get("url", ""))


@pytest.mark.parametrize(
    "given",
    [
        {"command": "ls"},
        {"command": ["ls"]},
        {"config": {"command": ["ls"]}},
        {"config": "cursor"},
        {"url": "https://a.test", "headers": {"X": "env:X"}},
        {"url": "https://a.test", "auth": "file:/etc/passwd"},
        {"url": "https://a.test", "headers": {"X": "a ${X} b"}},
        {"url": "http://127.0.0.1"},
        {"url": "http://a.internal"},
        {"url": "http://10.0.0.5:80"},
    ],
)
def test_untrusted_caller_cannot_use_operator_options(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        BOUNDS.make_backend(Caller(principal=BOB), "x", given, described)
    if not isinstance(given.get("config"), str):
        for caller in (ADMIN, LOCAL_CALLER):
            assert not BOUNDS.make_backend(caller, "x", given, described).confined


def test_backend_of_untrusted_caller_is_confined() -> None:
    for url in ("https://a.test/mcp", "http://mcp.home/mcp", "http://10.0.0.5:8080/mcp"):
        assert BOUNDS.make_backend(Caller(principal=BOB), "x", {"url": url}, described) == Backend(
            url=url, confined=True
        )


@pytest.mark.parametrize(
    "policy",
    [
        Policy(python="/usr/bin/python3"),
        Policy(python="python3"),
        Policy(memory=0),
        Policy(memory=1001),
        Policy(processes=11),
        Policy(output=50_001),
    ],
)
def test_policy_of_untrusted_caller_cannot_exceed_limits(policy: Policy) -> None:
    with pytest.raises(InvalidRequest):
        BOUNDS.check_policy(Caller(principal=BOB), policy)
    assert BOUNDS.check_policy(ADMIN, policy) == policy


@pytest.mark.parametrize("policy", [Policy(), Policy(python="venv"), Policy(memory=10, cpu=5, processes=10)])
def test_policy_below_the_limits_is_accepted(policy: Policy) -> None:
    assert BOUNDS.check_policy(Caller(principal=BOB), policy) == policy


def test_local_host_names_are_recognized() -> None:
    assert [is_local_name(name) for name in ("localhost", "a.LOCALHOST.", "x.local", "a.test")] == [
        True,
        True,
        True,
        False,
    ]
    assert is_allowed_host("https://MCP.home/x", ("mcp.HOME",)) and is_allowed_host("https://a:443", ("a:443",))
    assert is_allowed_host("http://[::1]:8080/x", ("[::1]:8080",)) and is_allowed_host("http://[::1]/", ("::1",))
    assert not is_allowed_host("https://mcp.home.evil.test", ("mcp.home",))
