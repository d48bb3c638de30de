"""Tell cells without direct network access why a connection outside the proxy fails."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from typing import Any

_LOCAL_HOSTS = ("localhost", "ip6-localhost", "")


class BlockedHostNotices:
    """Writes a notice to the output of the run, once per host."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    @property
    def audit_hooks(self) -> dict[str, Callable[[Any], None]]:
        """Python's audit events come before the connection fails."""
        return {
            "socket.connect": lambda arguments: self._on_connect(arguments[1]),
            "socket.getaddrinfo": lambda arguments: self._report(arguments[0]),
        }

    def begin_run(self) -> None:
        """Report each host again."""
        self._reported.clear()

    def _on_connect(self, address: Any) -> None:
        if isinstance(address, tuple) and address:
            self._report(address[0])

    def _report(self, host: Any) -> None:
        if isinstance(host, bytes):
            host = host.decode("ascii", "replace")
        if not isinstance(host, str) or host in _LOCAL_HOSTS or host in self._reported or _loopback(host):
            return
        self._reported.add(host)
        sys.stderr.write(
            f"[quire] {host} cannot be reached from here: the only way out is the proxy in http_proxy and https_proxy, "
            "for the hosts this notebook was granted.\n"
        )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
