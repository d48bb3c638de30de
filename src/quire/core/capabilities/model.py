"""Data of capabilities: backends, what they offer, and approval rules."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from quire.core.model import Principal

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CRED|COOKIE|PRIVATE", re.IGNORECASE)
"""Names of variables, headers and options that hold secrets."""

REFERENCE = re.compile(r"(?P<before>(?:[A-Za-z][\w-]* )?)(?:env:(?P<env>[^\s/]+)|file:(?P<file>\S.*))", re.DOTALL)
"""A reference to a secret, also after one word as in `Bearer env:NAME`."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """How an MCP server is reached: a command, a url, or a server's entry in another client's file.

    Values of `env` and `headers` may refer to secrets, `env:NAME` or `file:/path`. A reference is resolved where
    the backend is connected to, and nowhere else.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    folder: str = ""  # working folder of the command
    config: str = ""  # path of another client's configuration file
    entry: str = ""  # the name of the server there
    confined: bool = False  # only public addresses, no references to secrets

    @property
    def how(self) -> str:
        """Command or url without secrets."""
        if self.config:
            return f"{self.entry} of {self.config}"
        return address(self.url) if self.url else " ".join(_redacted_command(self.command))


def address(url: str) -> str:
    """A url without password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=host, query="…" if parts.query else "", fragment="").geturl()
    except ValueError:
        return "the url"


def _redacted_command(command: tuple[str, ...]) -> list[str]:
    shown: list[str] = []
    for before, part in zip(("", *command), command, strict=False):
        name, equals, _ = part.partition("=")
        if equals and SECRET.search(name):
            shown.append(f"{name}=…")
        else:
            shown.append("…" if before.startswith("-") and "=" not in before and SECRET.search(before) else part)
    return shown


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool of a backend, as it declares it."""

    name: str
    description: str = ""
    input: dict[str, Any] = field(default_factory=dict)  # JSON Schema of its arguments
    output: dict[str, Any] | None = None  # JSON Schema of its structured result
    hints: dict[str, Any] = field(default_factory=dict)  # its annotations: readOnlyHint, destructiveHint, ...


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What a backend offers."""

    tools: tuple[Tool, ...] = ()
    about: str = ""  # its instructions
    server: str = ""  # its name and version
    resources: bool = False
    prompts: bool = False


class Approve(StrEnum):
    """Whether a call is made, and whether a person is asked first."""

    ALLOW = "allow"
    ASK = "ask"  # if no person can be asked, the setting capabilities.allow_unattended decides
    ASK_OR_DENY = "ask_or_deny"  # denied if no person can be asked
    DENY = "deny"

    @classmethod
    def _missing_(cls, value: object) -> Approve | None:
        """The words of version 0.1, which stored data and notebooks may have."""
        return {"never": cls.ALLOW, "always": cls.ASK_OR_DENY}.get(value) if isinstance(value, str) else None


@dataclass(frozen=True, kw_only=True)
class Capability:
    """A backend under a name, for one principal's notebooks."""

    owner: Principal
    name: str
    backend: Backend
    offered: Offered
    approve: dict[str, Approve] = field(default_factory=dict)  # by method, "*" for all
    installed_at: float = 0.0  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The installed capabilities of one principal, as sent to kernels. The version changes with the content."""

    version: int
    entries: list[dict[str, Any]]
    hidden: list[str] = field(default_factory=list)  # environment variables that hold their secrets


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a tool: MCP content blocks and structured content."""

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False
