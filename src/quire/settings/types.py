"""Types of settings: how text becomes a value, and which values are refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from quire.core.limits import network_rules, sandbox_layers

_log = logging.getLogger("quire")

DEFAULT_TOOLSETS = ("notebook", "repl", "capabilities", "timeline")
TOOLSETS = (*DEFAULT_TOOLSETS, "files", "sandbox", "users", "jupyter")
"""All tool sets. If two have a tool of the same name, the first one's is offered."""

_OLD_APPROVE = {"never": "allow", "always": "ask_or_deny"}
"""Values of `capabilities.approve` in version 0.1, and what they are called now."""


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _approve_rules(value: Any) -> Any:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {what.strip(): word.strip() for what, _, word in pairs}
    if not isinstance(value, Mapping):
        return value
    for word in sorted({word for word in value.values() if isinstance(word, str)} & _OLD_APPROVE.keys()):
        _log.warning(
            "The value %r in capabilities.approve is now %r; the old value still works.", word, _OLD_APPROVE[word]
        )
    return {what: _OLD_APPROVE.get(word, word) if isinstance(word, str) else word for what, word in value.items()}


def _check_urls(value: tuple[str, ...]) -> tuple[str, ...]:
    for entry in value:
        if not re.fullmatch(r"([\w.-]+=)?https?://[^\s/]\S*", entry):
            raise ValueError("a Jupyter server is written as in http://localhost:8888, or lab=http://localhost:8888")
    return value


def _check_toolsets(value: tuple[str, ...]) -> tuple[str, ...]:
    if value == ("all",):
        return TOOLSETS
    value = tuple(name for entry in value for name in (DEFAULT_TOOLSETS if entry == "default" else (entry,)))
    unknown = [name for name in value if name not in TOOLSETS]
    if unknown or not value:
        raise ValueError(f"there is no tool set {', '.join(unknown)!r}; there are {', '.join(TOOLSETS)}")
    return tuple(dict.fromkeys(value))


def _check_sandbox(value: str) -> str:
    sandbox_layers.required_layers(value)
    return value


def _check_network(value: tuple[str, ...]) -> tuple[str, ...]:
    network_rules.parse_rules(value)
    return value


def _check_hosts(value: tuple[str, ...], *, wildcards: bool = True) -> tuple[str, ...]:
    for entry in value:
        network_rules.check_host(entry, wildcards=wildcards)
    return value


def _check_private_hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    return _check_hosts(value, wildcards=False)


def _check_variables(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if not re.fullmatch(r"[^\s=]+", name):
            raise ValueError(f"{name!r} is no name of a variable: write HF_TOKEN")
    return value


def _check_reference(value: str | None) -> str | None:
    if value is not None and not value.startswith(("file:", "env:")):
        raise ValueError("a secret is referred to, as file:/path or env:NAME")
    return value


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _existing_folder(path: Path) -> Path:
    path = _absolute(path)
    if not path.is_dir():
        raise ValueError("there is no such folder")
    return path


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
Toolsets = Annotated[Words, AfterValidator(_check_toolsets)]
Hosts = Annotated[Words, AfterValidator(_check_hosts)]
PrivateHosts = Annotated[Words, AfterValidator(_check_private_hosts)]
Network = Annotated[Words, AfterValidator(_check_network)]
Variables = Annotated[Words, AfterValidator(_check_variables)]
JupyterUrls = Annotated[Words, AfterValidator(_check_urls)]
SandboxMode = Annotated[str, AfterValidator(_check_sandbox)]
SecretReference = Annotated[str | None, AfterValidator(_check_reference)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
ExistingFolder = Annotated[Path, AfterValidator(_existing_folder)]
ApproveRules = Annotated[dict[str, Literal["allow", "ask", "ask_or_deny", "deny"]], BeforeValidator(_approve_rules)]
