"""Parse the arguments of install_capability and caps.install. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from quire.core.capabilities.model import REFERENCE, SECRET, Approve, Backend
from quire.core.errors import InvalidRequest

_KEYS = ("command", "url", "env", "headers", "auth", "config", "folder", "approve")


def parse_backend(
    name: str, given: Mapping[str, Any], described: Callable[[str | dict[str, Any], str], Backend]
) -> Backend:
    """The backend; `described` parses an entry of mcpServers or finds one in a client's file."""
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise InvalidRequest(f"There is no {', '.join(unknown)}; a backend is said by {', '.join(_KEYS)}.")
    transports = [key for key in ("command", "url", "config") if given.get(key)]
    if len(transports) != 1:
        got = f"both {' and '.join(transports)}" if transports else "none of them"
        raise InvalidRequest(
            "Say how the server is reached by one of: a command that starts it, a url, or config, an entry of "
            f"mcpServers or a client's file. Got {got}."
        )
    env, headers = _string_dict("env", given.get("env")), _string_dict("headers", given.get("headers"))
    if given.get("auth"):
        auth = str(given["auth"])
        headers.setdefault("Authorization", auth if " " in auth else f"Bearer {auth}")
    match transports[0]:
        case "command":
            if headers:
                raise InvalidRequest("headers and auth are for a url; a command's secrets go into env.")
            return Backend(command=_parse_command(given["command"]), env=env, folder=str(given.get("folder") or ""))
        case "url":
            if env:
                raise InvalidRequest("env is for a command; a url's secrets go into headers or auth.")
            return Backend(url=_check_url(given["url"]), headers=headers)
    there = described(given["config"], name)
    return replace(there, env={**there.env, **env}, headers={**there.headers, **headers})


def parse_approve(given: Mapping[str, Any]) -> dict[str, Approve]:
    """Approval rules by method; one rule for all becomes "*"."""
    rules = given.get("approve") or {}
    rules = {"*": rules} if isinstance(rules, str) else rules
    try:
        return {str(method): Approve(rule) for method, rule in rules.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidRequest(f"approve is one of {', '.join(Approve)}, or a dict of them by method.") from None


def describe_backend(backend: Backend) -> dict[str, Any]:
    """The backend without secrets: of env and headers only references are shown."""
    described = {key: value for key, value in asdict(backend).items() if value and key not in ("command", "url")}
    for key in ("env", "headers"):
        if key in described:
            values = described[key].items()
            described[key] = {name: value if REFERENCE.fullmatch(value) else "…" for name, value in values}
    return {"reached_by": backend.how, **described}


def plain_secrets(backend: Backend) -> list[str]:
    """Names of values that look like secrets but are no references, so they would be stored as plain text."""
    return [
        name
        for name, value in {**backend.env, **backend.headers}.items()
        if SECRET.search(name) and not REFERENCE.fullmatch(value)
    ]


def _parse_command(command: Any) -> tuple[str, ...]:
    if isinstance(command, list) and all(isinstance(part, str) for part in command) and command:
        return tuple(command)
    if not isinstance(command, str):
        raise InvalidRequest("command is a line, as in a terminal, or a list of texts.")
    try:
        parts = tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidRequest(f"The command cannot be read as in a terminal: {error}.") from None
    if not parts:
        raise InvalidRequest("The command is empty.")
    return parts


def _check_url(url: Any) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"url is the address of a server, http://… or https://…; got {url!r}.")
    if parts.username or parts.password:
        raise InvalidRequest('A url holds no password here: pass headers={"Authorization": "Bearer env:NAME"}.')
    return str(url)


def _string_dict(what: str, given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest(f"{what} is a dict of texts.")
    return {str(name): value for name, value in given.items()}
