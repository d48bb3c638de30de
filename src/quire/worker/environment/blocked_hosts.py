"""Says what a kernel without a network means, when code tries to go past the proxy that is its only way out."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from typing import Any

_LOCAL_HOSTS = ("localhost", "ip6-localhost", "")


class BlockedHostNotices:
    """Named in the output of the run that makes them, each once."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    @property
    def audit_hooks(self) -> dict[str, Callable[[Any], None]]:
        """By Python's own events, which name them before they fail."""
        return {
            "socket.connect": lambda arguments: self._on_connect(arguments[1]),
            "socket.getaddrinfo": lambda arguments: self._report(arguments[0]),
        }

    def begin_run(self) -> None:
        """A new run."""
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
