"""MCP servers in the configuration files of other clients: read on each connection, never copied."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.core.capabilities.model import Backend
from quire.core.errors import InvalidRequest, NotFound

_MAX_FILE_BYTES = 16 * 2**20  # Claude Code stores other data in its file too
_KEYS = ("mcpServers", "servers")  # of Claude and Cursor, of VS Code


def client_files() -> dict[str, list[Path]]:
    """The user's configuration files by client. Files of the working folder are not among them, so that a cloned
    project cannot choose what runs."""
    home = Path.home()
    settings = home / ("Library/Application Support" if sys.platform == "darwin" else ".config")
    return {
        "claude-desktop": [settings / "Claude/claude_desktop_config.json"],
        "claude-code": [home / ".claude.json"],
        "cursor": [home / ".cursor/mcp.json"],
        "vscode": [settings / "Code/User/mcp.json", settings / "Code/User/settings.json"],
    }


def find_server(config: str, name: str) -> Backend:
    """Find a server by the path of a file or the name of a client, and its own name or identifier.

    Raises NotFound, which names the known servers, or InvalidRequest if the file cannot be read.
    """
    there = _files(config)
    seen: list[str] = []
    for place in there:
        found = read_servers(place)
        for server in found:
            if server == name:
                return Backend(config=str(place), entry=server)
        alike = [server for server in found if _identifier(server) == _identifier(name)]
        if len(alike) == 1:
            return Backend(config=str(place), entry=alike[0])
        seen += found
    which = f"It has {_joined_names(seen)}." if seen else "It has no servers."
    raise NotFound(f"{' and '.join(map(str, there))} has no MCP server {name!r}. {which}")


def server_names(config: str) -> list[str]:
    """The names of all servers in a file or of a client."""
    return list(dict.fromkeys(name for place in _files(config) for name in read_servers(place)))


def _files(config: str) -> list[Path]:
    places = [place.absolute() for place in client_files().get(config, [Path(config).expanduser()])]
    there = [place for place in places if place.is_file()]
    if not there:
        looked = " or ".join(map(str, places))
        raise NotFound(
            f"There is no file {looked}. Pass a configuration file's path, or one of {_joined_names(client_files())}."
        )
    return there


def read_servers(path: str | Path) -> dict[str, Backend]:
    """All servers in a file. Raises InvalidRequest if it cannot be read."""
    settings = _parse(Path(path))
    inner = settings.get("mcp")
    for place in (settings, inner if isinstance(inner, dict) else {}):
        for key in _KEYS:
            if isinstance(place.get(key), dict):
                return {
                    str(name): parse_entry(server) for name, server in place[key].items() if isinstance(server, dict)
                }
    return {}


def parse_entry(given: dict[str, Any]) -> Backend:
    """Parse an entry with command, args, env, cwd, or url, headers. Invalid values are left out."""
    command = given.get("command")
    args = given.get("args")
    argv = command if isinstance(command, list) else [command] if isinstance(command, str) and command else []
    url = next((given[key] for key in ("url", "serverUrl", "httpUrl") if isinstance(given.get(key), str)), "")
    headers = _texts(given.get("headers"))
    if isinstance(auth := given.get("auth"), str) and auth:
        headers.setdefault("Authorization", authorization(auth))
    return Backend(
        command=tuple(str(part) for part in [*argv, *(args if isinstance(args, list) and argv else [])]),
        url="" if argv else url,
        env=_texts(given.get("env")),
        headers=headers,
        folder=given["cwd"] if isinstance(given.get("cwd"), str) else "",
    )


def authorization(auth: str) -> str:
    """The header for a token or a reference to one, with the scheme Bearer if it has none."""
    return auth if " " in auth else f"Bearer {auth}"


def resolve_entry(backend: Backend, expand: Callable[[str], str]) -> Backend:
    """The backend with the current entry of its file; its own values override those of the file.

    `${VAR}` is expanded in command and url, but not in env and headers.
    """
    place = find_server(backend.config, backend.entry)
    there = read_servers(place.config)[place.entry]
    if not there.command and not there.url:
        raise InvalidRequest(f"The entry {place.entry!r} of {place.config} has neither a command nor a url.")
    return replace(
        there,
        command=tuple(map(expand, there.command)),
        url=expand(there.url),
        env={**there.env, **backend.env},
        headers={**there.headers, **backend.headers},
        folder=backend.folder or expand(there.folder),
    )


def _texts(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {str(name): str(value) for name, value in given.items() if isinstance(value, str | int | float)}


def _identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower()


def _joined_names(names: Any) -> str:
    return ", ".join(sorted({str(name)[:100] for name in names})[:50])


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}. Check the path and who may read it.") from error
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidRequest(f"{path} is larger than 16 MB, which no configuration file is.")
    text = data.decode("utf-8-sig", "replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        try:
            parsed = json.loads(_without_comments(text))
        except (ValueError, RecursionError) as error:
            where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise InvalidRequest(f"{path} is not JSON{where}. Correct it there.") from None
    return parsed if isinstance(parsed, dict) else {}


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=\s*(?:(?://[^\n]*|/\*.*?\*/)\s*)*[}\]])', re.DOTALL)


def _without_comments(text: str) -> str:
    """JSON without the comments and trailing commas that VS Code allows."""
    return _TOKEN.sub(lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0]), text)
