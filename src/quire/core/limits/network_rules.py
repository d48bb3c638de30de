"""Network rules: which hosts a notebook's code may connect to. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

_RULE = re.compile(r"(?P<host>\*|(?:\*\.)?[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}|\*))?", re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?|[0-9a-f:.]+", re.IGNORECASE)
_DEFAULT_PORTS = (80, 443)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # its last 32 bits are an IPv4 address
_ALSO_INTERNAL = tuple(  # `is_global` says public in some versions of Python
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # for protocols; metadata of Oracle's cloud
        "168.63.129.16/32",  # Azure's services for its machines
        "::/96",  # IPv4 addresses as IPv6, deprecated
        "64:ff9b:1::/48",  # NAT64 inside one network
        "2002::/16",  # 6to4, deprecated
        "fec0::/10",  # site-local, deprecated
    )
)
_DOCUMENTATION = tuple(  # no services; closed networks resolve public names to them
    ipaddress.ip_network(network) for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)


@dataclass(frozen=True)
class Rule:
    """A host name (`*.name` for its subdomains, `*` for all public hosts) and ports; None is every port."""

    host: str
    ports: tuple[int, ...] | None

    def covers(self, host: str, port: int) -> bool:
        if self.ports is not None and port not in self.ports:
            return False
        if self.host == "*":
            return True
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


def parse_rules(granted: Iterable[str]) -> tuple[Rule, ...]:
    """Parse `host`, `host:port` or `host:*`; without a port 80 and 443. Raises ValueError."""
    found = []
    for entry in granted:
        match = _RULE.fullmatch(entry.strip())
        if match is None or ((match["port"] or "0").isdigit() and int(match["port"] or 0) > 65535):
            raise ValueError(f"{entry!r} is not a host: write example.org, *.example.org or 10.0.0.5:8080")
        ports = _DEFAULT_PORTS if match["port"] is None else None if match["port"] == "*" else (int(match["port"]),)
        found.append(Rule(match["host"].lower().strip("[]").rstrip("."), ports))
    return tuple(found)


def check_host(named: str, *, wildcards: bool = False) -> None:
    """Raises ValueError unless it is a host with or without a port. With `wildcards` it may contain `*`."""
    match = _HOST.fullmatch(named.replace("*", "x") if wildcards else named)
    if match is None or int(match["port"] or 0) > 65535:
        raise ValueError(f"{named!r} is not a host: write example.org, 10.0.0.5:8080 or [::1]:8080")


def find_rule(granted: Iterable[Rule], host: str, port: int) -> Rule | None:
    return next((rule for rule in granted if rule.covers(host, port)), None)


def are_granted(asked: Iterable[Rule], granted: Iterable[Rule]) -> bool:
    """Whether the granted rules cover all rules asked for."""
    granted = tuple(granted)
    return all(any(_rule_covers(rule, other) for other in granted) for rule in asked)


def still_granted(own: Iterable[str], granted: Iterable[str]) -> tuple[str, ...]:
    """The rules of a notebook that are still granted."""
    today = parse_rules(granted)
    return tuple(entry for entry in own if are_granted(parse_rules([entry]), today))


def is_internal(address: str) -> bool:
    """Whether this is an IP address outside the public internet: of this machine or its network, where services trust
    every caller, or a multicast address. False for names."""
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
    """Whether this is an IP address or localhost, not a name that DNS may resolve to any address."""
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
        return False  # a grant for all names does not include this machine
    name = asked.host.removeprefix("*")
    return rule.host == "*" or (rule.host.startswith("*.") and name.endswith(rule.host[1:]))
