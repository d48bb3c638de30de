"""Rules for callers that are neither the local user nor an admin: no programs, secrets, internal addresses or
interpreters of the server's machine. Pure functions; each error says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from quire.core.capabilities.model import REFERENCE, Backend
from quire.core.capabilities.request import parse_backend
from quire.core.errors import InvalidRequest
from quire.core.limits.network_rules import is_internal
from quire.core.model import KernelLimits, Policy
from quire.core.notebooks.access import Caller

_PYTHONS = ("", "venv")
_NO_LIMITS = KernelLimits()


@dataclass(frozen=True, kw_only=True)
class UntrustedCallerPolicy:
    hosts: tuple[str, ...] = ()  # that all callers may reach, as host or host:port
    limits: KernelLimits = _NO_LIMITS  # the maximum for a notebook's own limits
    output: int = 0  # bytes kept of a run
    wasm_memory: int = 0  # bytes of a WebAssembly notebook

    def make_backend(
        self,
        caller: Caller,
        name: str,
        given: Mapping[str, Any],
        described: Callable[[str | dict[str, Any], str], Backend],
    ) -> Backend:
        """The backend a caller describes, confined unless the caller is trusted. Raises InvalidRequest."""
        if caller.is_trusted:
            return parse_backend(name, given, described)
        if isinstance(given.get("config"), str):  # before any file is opened
            raise InvalidRequest(
                "config as a file of the server's machine is for admins. Pass url and headers instead."
            )
        backend = parse_backend(name, given, described)
        if backend.command or backend.env or backend.folder:
            raise InvalidRequest(
                "A capability by command would run a program on the server's machine: only admins install one. "
                "Install it by url, or ask the operator."
            )
        for header, value in backend.headers.items():
            if REFERENCE.fullmatch(value) or "${" in value:
                raise InvalidRequest(
                    f"{header} refers to a secret of the server's machine, which only admins may. Pass the value "
                    "itself: it is kept in the server's data directory, for your notebooks alone."
                )
        self._check_host(backend.url)
        return replace(backend, confined=True)

    def _check_host(self, url: str) -> None:
        host = urlsplit(url).hostname or ""
        if not is_allowed_host(url, self.hosts) and (is_local_name(host) or is_internal(host)):
            raise InvalidRequest(
                f"{host} is an address inside the server's own network: only admins, and hosts the operator allows "
                "(setting capabilities.private_hosts), are reached there."
            )

    def check_policy(self, caller: Caller, policy: Policy, runtime: str | None = None) -> Policy:
        """The policy a caller passes for a new notebook. Raises InvalidRequest."""
        if caller.is_trusted:
            return policy
        if runtime == "jupyter":
            self.check_jupyter(caller)
        if policy.python not in _PYTHONS:
            raise InvalidRequest(
                'python as a path of the server\'s machine is for admins. Leave it out, or pass "venv" for an '
                "environment of the notebook's own."
            )
        in_wasm = runtime is not None and runtime.startswith("wasm-")
        for name, value, most in (
            ("memory_bytes", policy.memory, self.wasm_memory if in_wasm else self.limits.memory),
            ("cpu_seconds", policy.cpu, self.limits.cpu),
            ("processes", policy.processes, self.limits.processes),
            ("output_bytes", policy.output, self.output),
            ("fuel", policy.fuel, self.limits.fuel),
        ):
            if value is not None and most and (not value or value > most):
                raise InvalidRequest(f"{name} may be at most {most:,} here, and not 0, which is no limit.")
        return policy

    def check_jupyter(self, caller: Caller) -> None:
        """Raises InvalidRequest unless the caller is trusted: code in a Jupyter kernel has its server's rights."""
        if not caller.is_trusted:
            raise InvalidRequest(
                "Jupyter servers are the operator's own: only admins connect to one and use what is there."
            )


def is_allowed_host(url: str, hosts: tuple[str, ...]) -> bool:
    """Whether the operator lets all callers reach the host of a URL."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    names = (host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}")  # IPv6 addresses with and without brackets
    return any(allowed.lower() in names for allowed in hosts)


def is_local_name(host: str) -> bool:
    return host.lower().rstrip(".").rpartition(".")[2] in ("localhost", "local", "internal")
