"""What somebody said about a backend, as data: the arguments of install_capability and caps.install. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from quire.core.capabilities.model import REFERENCE, SECRET, Approve, Backend
from quire.core.errors import InvalidRequest

_KNOWN = ("command", "url", "env", "headers", "auth", "config", "folder", "approve")


def backend_of(
    name: str, given: Mapping[str, Any], described: Callable[[str | dict[str, Any], str], Backend]
) -> Backend:
    """`described` reads an entry as other clients write it, or finds one in their file."""
    unknown = [key for key in given if key not in _KNOWN]
    if unknown:
        raise InvalidRequest(f"There is no {', '.join(unknown)}; a backend is said by {', '.join(_KNOWN)}.")
    ways = [key for key in ("command", "url", "config") if given.get(key)]
    if len(ways) != 1:
        said = f"both {' and '.join(ways)}" if ways else "none of them"
        raise InvalidRequest(
            "Say how the server is reached by one of: a command that starts it, a url, or config, an entry of "
            f"mcpServers or a client's file. Got {said}."
        )
    env, headers = _texts("env", given.get("env")), _texts("headers", given.get("headers"))
    if given.get("auth"):
        auth = str(given["auth"])
        headers.setdefault("Authorization", auth if " " in auth else f"Bearer {auth}")
    match ways[0]:
        case "command":
            if headers:
                raise InvalidRequest("headers and auth are for a url; a command's secrets go into env.")
            return Backend(command=_argv(given["command"]), env=env, folder=str(given.get("folder") or ""))
        case "url":
            if env:
                raise InvalidRequest("env is for a command; a url's secrets go into headers or auth.")
            return Backend(url=_url(given["url"]), headers=headers)
    there = described(given["config"], name)
    return replace(there, env={**there.env, **env}, headers={**there.headers, **headers})


def approve_of(given: Mapping[str, Any]) -> dict[str, Approve]:
    """One word for all methods, or one for each."""
    said = given.get("approve") or {}
    said = {"*": said} if isinstance(said, str) else said
    if not isinstance(said, dict) or not all(isinstance(word, str) and word in set(Approve) for word in said.values()):
        raise InvalidRequest(f"approve is one of {', '.join(Approve)}, or a dict of them by method.")
    return {str(method): Approve(word) for method, word in said.items()}


def told(backend: Backend) -> dict[str, Any]:
    """How it is reached, for a file that people read: of env and headers only what refers to a secret."""
    said = {key: value for key, value in asdict(backend).items() if value and key not in ("command", "url")}
    for key in ("env", "headers"):
        if key in said:
            said[key] = {name: value if REFERENCE.fullmatch(value) else "…" for name, value in said[key].items()}
    return {"reached_by": backend.how, **said}


def plain_secrets(backend: Backend) -> list[str]:
    """Names of values that look like secrets and are no references: they would be kept as they are."""
    return [
        name
        for name, value in {**backend.env, **backend.headers}.items()
        if SECRET.search(name) and not REFERENCE.fullmatch(value)
    ]


def _argv(command: Any) -> tuple[str, ...]:
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


def _url(url: Any) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"url is the address of a server, http://… or https://…; got {url!r}.")
    if parts.username or parts.password:
        raise InvalidRequest('A url holds no password here: pass headers={"Authorization": "Bearer env:NAME"}.')
    return str(url)


def _texts(what: str, given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest(f"{what} is a dict of texts.")
    return {str(name): value for name, value in given.items()}
