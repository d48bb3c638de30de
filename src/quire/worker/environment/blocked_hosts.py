"""Says what a kernel without a network means, when code tries to go past the proxy that is its only way out."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from typing import Any

_HERE = ("localhost", "ip6-localhost", "")


class Attempts:
    """Named in the output of the run that makes them, each once."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    @property
    def watched(self) -> dict[str, Callable[[Any], None]]:
        """By Python's own events, which name them before they fail."""
        return {
            "socket.connect": lambda seen: self._to(seen[1]),
            "socket.getaddrinfo": lambda seen: self._name(seen[0]),
        }

    def forget(self) -> None:
        """A new run."""
        self._named.clear()

    def _to(self, address: Any) -> None:
        if isinstance(address, tuple) and address:
            self._name(address[0])

    def _name(self, host: Any) -> None:
        if isinstance(host, bytes):
            host = host.decode("ascii", "replace")
        if not isinstance(host, str) or host in _HERE or host in self._named or _loopback(host):
            return
        self._named.add(host)
        sys.stderr.write(
            f"[quire] {host} cannot be reached from here: the only way out is the proxy in http_proxy and https_proxy, "
            "for the hosts this notebook was granted.\n"
        )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
