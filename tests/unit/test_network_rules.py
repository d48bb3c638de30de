"""Which hosts a notebook's code may connect to: words to rules, what they cover, and who may ask for what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.limits.network_rules import (
    Rule,
    are_granted,
    check_host,
    find_rule,
    is_internal,
    is_literal_address,
    parse_rules,
    still_granted,
)
from quire.core.limits.validation import Limits, check_policy
from quire.core.model import Policy

LABEL = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
HOST = st.one_of(NAME, NAME.map("*.{}".format), st.sampled_from(["*", "127.0.0.1", "10.0.0.5", "8.8.8.8", "localhost"]))
ENTRY = st.tuples(HOST, st.sampled_from(["", ":80", ":443", ":8080", ":*"])).map("".join)
PORT = st.sampled_from([80, 443, 8080, 1, 65535])


def covers(entry: str, host: str, port: int = 443) -> bool:
    return find_rule(parse_rules([entry]), host, port) is not None


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ("example.org", Rule("example.org", (80, 443))),
        ("  Example.ORG. ", Rule("example.org", (80, 443))),
        ("example.org:8080", Rule("example.org", (8080,))),
        ("example.org:*", Rule("example.org", None)),
        ("*.example.org", Rule("*.example.org", (80, 443))),
        ("*:443", Rule("*", (443,))),
        ("10.0.0.5:8080", Rule("10.0.0.5", (8080,))),
        ("[::1]:8080", Rule("::1", (8080,))),
    ],
)
def test_words_become_a_rule(entry: str, rule: Rule) -> None:
    assert parse_rules([entry]) == (rule,)


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "",
            "http://example.org",
            "example.org/path",
            "a b",
            "example.org:65536",
            "example.org:-1",
            "example.org:http",
        ),
        *("*example.org", "ex*mple.org", "::1", "user@example.org", "example.org:80:80", "[::1", "exämple.org"),
    ],
)
def test_what_is_no_host_is_refused_with_how_to_write_one(entry: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host: write example\.org"):
        parse_rules([entry])


def test_without_a_port_it_is_the_web_s_two() -> None:
    assert [covers("example.org", "example.org", port) for port in (80, 443, 22, 8080)] == [True, True, False, False]
    assert covers("example.org:*", "example.org", 22) and not covers("example.org:8080", "example.org", 80)


def test_a_star_covers_all_below_a_name_and_nothing_that_only_looks_so() -> None:
    assert covers("*.example.org", "a.example.org") and covers("*.example.org", "a.b.example.org")
    assert not covers("*.example.org", "example.org")
    assert not covers("*.example.org", "badexample.org")
    assert not covers("*.example.org", "a.example.org.bad.net")
    assert not covers("example.org", "a.example.org")
    assert covers("*", "anything.at.all")


@pytest.mark.parametrize(
    ("asked", "granted", "may"),
    [
        (["pypi.org"], ["pypi.org", "files.pythonhosted.org"], True),
        (["pypi.org:443"], ["pypi.org"], True),
        (["pypi.org:*"], ["pypi.org"], False),
        (["pypi.org"], ["pypi.org:443"], False),
        (["a.example.org"], ["*.example.org"], True),
        (["*.a.example.org"], ["*.example.org"], True),
        (["*.example.org"], ["a.example.org"], False),
        (["example.org"], ["*.example.org"], False),
        (["*"], ["*.org"], False),
        (["*.org"], ["*"], True),
        ([], [], True),
        (["pypi.org"], [], False),
        (["8.8.8.8"], ["*"], True),
        (["127.0.0.1:80"], ["127.0.0.1"], True),
    ],
)
def test_who_asks_gets_no_more_than_was_granted(asked: list[str], granted: list[str], may: bool) -> None:
    assert are_granted(parse_rules(asked), parse_rules(granted)) is may


@pytest.mark.parametrize(
    "place", ["127.0.0.1", "localhost", "10.0.0.5", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[fd00::1]"]
)
def test_all_names_are_not_the_machine_itself(place: str) -> None:
    """Or a caller could reach an address that a grant of every public host does not mean."""
    assert not are_granted(parse_rules([f"{place}:8080"]), parse_rules(["*:*", "*.0.0.1:*"]))
    assert are_granted(parse_rules([f"{place}:8080"]), parse_rules([f"{place}:*"]))


INTERNAL = """
    127.0.0.1 127.9.9.9 0.0.0.0 0.1.2.3 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1
    100.100.100.200 192.0.0.192 168.63.129.16 198.18.0.1 198.19.255.255 240.0.0.1 255.255.255.255 224.0.0.1 239.1.1.1
    ::1 :: fe80::1%eth0 fd12::1 fd00:ec2::254 fec0::1 feff::1 ff02::1 ff0e::1 2001:db8::1 100::1 2001::1
    ::127.0.0.1 ::10.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:168.63.129.16 ::ffff:240.0.0.1
    64:ff9b::a00:1 64:ff9b::7f00:1 64:ff9b::a83f:8110 64:ff9b:1::1 64:ff9b:1:ffff::8.8.8.8
    2002:7f00:1:: 2002:a00:1::1 2002:808:808::1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 172.15.255.255 172.32.0.1 192.167.255.255 100.63.255.255 100.128.0.1 168.63.129.15 168.63.129.17
    198.17.255.255 198.20.0.1 223.255.255.255 2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::808:808
    192.0.2.1 198.51.100.1 203.0.113.80 ::ffff:203.0.113.80
"""
NAMES = ("a.test", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "[::1]", "")


@pytest.mark.parametrize(
    ("address", "internal"),
    [
        *((address, True) for address in INTERNAL.split()),
        *((address, False) for address in PUBLIC.split()),
        *((name, False) for name in NAMES),
    ],
)
def test_addresses_outside_the_public_internet_are_internal(address: str, internal: bool) -> None:
    assert is_internal(address) is internal


def test_a_place_is_named_by_its_address_alone() -> None:
    assert [is_literal_address(each) for each in ("127.0.0.1", "::1", "localhost", "127.1", "example.org", "*")] == [
        *(True, True, True),
        *(False, False, False),
    ]


def test_what_is_no_longer_granted_is_no_longer_a_notebook_s() -> None:
    assert still_granted(["pypi.org", "10.0.0.5:80"], ["pypi.org"]) == ("pypi.org",)
    assert still_granted(["pypi.org"], []) == ()


@given(asked=ENTRY, granted=st.lists(ENTRY, max_size=3), host=NAME, port=PORT)
def test_what_is_within_covers_no_host_that_was_not_granted(
    asked: str, granted: list[str], host: str, port: int
) -> None:
    mine, all_of = parse_rules([asked]), parse_rules(granted)
    if are_granted(mine, all_of) and find_rule(mine, host, port):
        assert find_rule(all_of, host, port)


@given(granted=st.lists(ENTRY, max_size=4))
def test_all_that_was_granted_is_within_itself(granted: list[str]) -> None:
    assert are_granted(parse_rules(granted), parse_rules(granted))
    assert still_granted(granted, granted) == tuple(granted)


def test_a_notebook_is_refused_a_wider_network_with_the_way_to_get_it() -> None:
    limits = Limits(
        cell_timeout=1, max_timeout=1, max_cells=1, max_code_bytes=1, max_output_bytes=1, grace=1, call_wait_seconds=1,
        network=("pypi.org",),
    )  # fmt: skip
    assert check_policy(Policy(network=()), limits).network == ()
    with pytest.raises(
        InvalidRequest, match=r"no wider than what was granted here: pypi\.org\. .*setting `sandbox.network`"
    ):
        check_policy(Policy(network=("example.org",)), limits)
    with pytest.raises(InvalidRequest, match="network: 'http://x' is not a host"):
        check_policy(Policy(network=("http://x",)), limits)


@pytest.mark.parametrize(
    "named", ["a.org", "a_b-c.org:80", "10.0.0.5:8080", "[::1]:8080", "[fd00::1]", "::1", "LOCALHOST"]
)
def test_places_are_hosts_with_or_without_a_port(named: str) -> None:
    check_host(named)
    check_host(f"*.{named}" if named[0].isalpha() else named, wildcards=True)


@pytest.mark.parametrize(
    "named", ["", "a b", "https://a.org", "a.org/", "a.org:", "a.org:x", "a.org:65536", "*.a.org", "u@a"]
)
def test_what_is_no_place_is_refused(named: str) -> None:
    with pytest.raises(ValueError, match="is not a host: write"):
        check_host(named)
