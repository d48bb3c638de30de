"""Which hosts a notebook's code may connect to: the words people write, and what they cover. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ENTRY = re.compile(r"(?P<host>\*|(?:\*\.)?[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}|\*))?", re.IGNORECASE)
_PORTS = (80, 443)


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


def rules(granted: Iterable[str]) -> tuple[Rule, ...]:
    """`host`, `host:port` or `host:*`, each; without a port 80 and 443. Raises ValueError on what is neither."""
    found = []
    for entry in granted:
        match = _ENTRY.fullmatch(entry.strip())
        if match is None or ((match["port"] or "0").isdigit() and int(match["port"] or 0) > 65535):
            raise ValueError(f"{entry!r} is no host: write example.org, *.example.org or 10.0.0.5:8080")
        ports = _PORTS if match["port"] is None else None if match["port"] == "*" else (int(match["port"]),)
        found.append(Rule(match["host"].lower().strip("[]").rstrip("."), ports))
    return tuple(found)


def covering(granted: Iterable[Rule], host: str, port: int) -> Rule | None:
    return next((rule for rule in granted if rule.covers(host, port)), None)


def within(asked: Iterable[Rule], granted: Iterable[Rule]) -> bool:
    """Whether all that is asked for was granted."""
    granted = tuple(granted)
    return all(any(_covers(each, rule) for rule in granted) for each in asked)


def _covers(asked: Rule, rule: Rule) -> bool:
    ports = rule.ports is None or (asked.ports is not None and set(asked.ports) <= set(rule.ports))
    name = asked.host.removeprefix("*")
    hosts = rule.host in ("*", asked.host) or (rule.host.startswith("*.") and name.endswith(rule.host[1:]))
    return ports and hosts
