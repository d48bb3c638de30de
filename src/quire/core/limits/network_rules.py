"""Which hosts a notebook's code may connect to: the words people write, and what they cover. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

_RULE = re.compile(r"(?P<host>\*|(?:\*\.)?[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}|\*))?", re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?|[0-9a-f:.]+", re.IGNORECASE)
_DEFAULT_PORTS = (80, 443)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # whose last 32 bits are an IPv4 address
_ALSO_INTERNAL = tuple(  # which `is_global` takes for public, in some versions of Python
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # for protocols; Oracle's cloud has its metadata there
        "168.63.129.16/32",  # services of Azure for its own machines
        "::/96",  # IPv4 addresses as IPv6, deprecated
        "64:ff9b:1::/48",  # NAT64 inside one network
        "2002::/16",  # 6to4, deprecated
        "fec0::/10",  # site-local, deprecated
    )
)
_DOCUMENTATION = tuple(  # of no network's services; closed networks let public names lead to such an address
    ipaddress.ip_network(network) for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)


@dataclass(frozen=True)
class Rule:
    """Hosts of this name (`*.name` for all below it, `*` for every public one) at these ports; None is every port."""

    host: str
    ports: tuple[int, ...] | None

    def covers(self, host: str, port: int) -> bool:
        if self.ports is not None and port not in self.ports:
            return False
        if self.host == "*":
            return True
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


def parse_rules(granted: Iterable[str]) -> tuple[Rule, ...]:
    """`host`, `host:port` or `host:*`, each; without a port 80 and 443. Raises ValueError on what is neither."""
    found = []
    for entry in granted:
        match = _RULE.fullmatch(entry.strip())
        if match is None or ((match["port"] or "0").isdigit() and int(match["port"] or 0) > 65535):
            raise ValueError(f"{entry!r} is no host: write example.org, *.example.org or 10.0.0.5:8080")
        ports = _DEFAULT_PORTS if match["port"] is None else None if match["port"] == "*" else (int(match["port"]),)
        found.append(Rule(match["host"].lower().strip("[]").rstrip("."), ports))
    return tuple(found)


def check_host(named: str, *, wildcards: bool = False) -> None:
    """Raises ValueError for what is neither a host nor a host with a port; `*` may stand in it with `wildcards`."""
    match = _HOST.fullmatch(named.replace("*", "x") if wildcards else named)
    if match is None or int(match["port"] or 0) > 65535:
        raise ValueError(f"{named!r} is no host: write example.org, 10.0.0.5:8080 or [::1]:8080")


def find_rule(granted: Iterable[Rule], host: str, port: int) -> Rule | None:
    return next((rule for rule in granted if rule.covers(host, port)), None)


def are_granted(asked: Iterable[Rule], granted: Iterable[Rule]) -> bool:
    """Whether all that is asked for was granted."""
    granted = tuple(granted)
    return all(any(_rule_covers(each, rule) for rule in granted) for each in asked)


def still_granted(own: Iterable[str], granted: Iterable[str]) -> tuple[str, ...]:
    """Of what a notebook asked for once, what is granted today."""
    today = parse_rules(granted)
    return tuple(entry for entry in own if are_granted(parse_rules([entry]), today))


def is_internal(address: str) -> bool:
    """Whether this is an IP address that is not on the public internet: of this machine or of its network, where
    services trust every caller that reaches them, or of no single machine. A name is never one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or (ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF) if ip in _NAT64 else ip)
    if any(ip in network for network in _DOCUMENTATION):
        return False
    return not ip.is_global or ip.is_multicast or any(ip in network for network in _ALSO_INTERNAL)


def is_literal_address(host: str) -> bool:
    """Whether whoever granted it named the place itself, not a name that others may lead anywhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _rule_covers(asked: Rule, rule: Rule) -> bool:
    if rule.ports is not None and not (asked.ports is not None and set(asked.ports) <= set(rule.ports)):
        return False
    if rule.host == asked.host:
        return True
    if asked.host == "localhost" or is_internal(asked.host):
        return False  # who grants all names has not granted the machine itself
    name = asked.host.removeprefix("*")
    return rule.host == "*" or (rule.host.startswith("*.") and name.endswith(rule.host[1:]))
