"""Resolve references to secrets and redact their values in messages and data."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from quire.core.capabilities.model import REFERENCE, SECRET
from quire.core.errors import OperationFailed

HIDDEN = "[secret]"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$\{(?P<kind>env:|input:|)(?P<name>[^}:]+)(?::-(?P<default>[^}]*))?\}")
_MAX_FILE_BYTES = 64 * 2**10  # of a file
_MIN_CHARS_IN_TEXT = 4  # shorter secrets are not redacted in messages
_MIN_CHARS_IN_DATA = 8  # and in data, which they could match by chance


class Secrets:
    """The secrets of one connection, collected while references are resolved."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.variables: set[str] = set()  # environment variables that were used
        self._values: set[str] = set()
        self._words: re.Pattern[str] | None = None
        self._data: re.Pattern[str] | None = None

    def resolve(self, value: str) -> str:
        """Resolve `env:NAME` and `file:/path`, also after one word as in `Bearer env:NAME`.

        Other values are returned unchanged. Raises OperationFailed if the secret does not exist.
        """
        found = REFERENCE.fullmatch(value)
        if found is None:
            return value
        return found["before"] + self._hide(self._variable(found["env"]) if found["env"] else _file(found["file"]))

    def expand(self, value: str) -> str:
        """Expand `${VAR}`, `${VAR:-default}` and `${env:VAR}`, as in other clients' files."""
        return _VARIABLE.sub(self._expanded, value)

    def _expanded(self, found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        if found["kind"] == "input:":
            raise OperationFailed(
                f"{found[0]} is asked of a person by VS Code, which cannot be done here. Put the value into an "
                "environment variable of this server and pass env or headers with a reference, env:NAME."
            )
        if default is not None and not self._environ.get(name):
            return default
        return self._hide(self._variable(name))

    def _variable(self, name: str) -> str:
        if not _ENV_NAME.fullmatch(name):
            raise OperationFailed(f"env:{name} names no environment variable: letters, digits and _ only.")
        self.variables.add(name)
        value = self._environ.get(name)
        if not value:
            raise OperationFailed(
                f"The environment variable {name}, referred to as env:{name}, is not set where this server was "
                "started. Set it there and start the server again, or refer to a file with file:/path."
            )
        return value

    def resolve_all(self, given: Mapping[str, str]) -> dict[str, str]:
        """Resolve the values of env or headers. Plain values are secrets if their name says so."""
        resolved: dict[str, str] = {}
        for name, value in given.items():
            expanded = self.expand(value)
            resolved[name] = self.resolve(value) if expanded == value else expanded  # expand or resolve, not both
        self.hide_all(resolved)
        return resolved

    def hide_all(self, values: Mapping[str, str]) -> None:
        """Redact values whose names say that they are secret."""
        for name, value in values.items():
            self._hide_if(name, value)

    def hide_in(self, command: Sequence[str], url: str) -> None:
        """Redact options, arguments and url parameters whose names say that they are secret."""
        for before, word in pairwise(command):
            if before.startswith("-") and not word.startswith("-"):
                self._hide_if(before, word)
        for word in command:
            self._hide_if(*word.split("=", 1)) if "=" in word else None
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            self._hide(unquote(parts.password or ""))
            for name, value in parse_qsl(parts.query):
                self._hide_if(name, value)

    def _hide_if(self, name: str, value: str) -> None:
        if SECRET.search(name):
            self._hide(value)
            self._hide(value.rpartition(" ")[2])  # without a scheme such as Bearer

    def _hide(self, value: str) -> str:
        secret = value.strip()
        if len(secret) >= _MIN_CHARS_IN_TEXT:
            self._values |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
            self._values |= {
                line for line in secret.splitlines() if len(line) >= _MIN_CHARS_IN_DATA
            }  # output may be cut at line ends
            self._words = _any_of(self._values)
            self._data = _any_of({known for known in self._values if len(known) >= _MIN_CHARS_IN_DATA})
        return value

    def redact(self, text: str) -> str:
        """The message without secrets."""
        return self._words.sub(HIDDEN, text) if self._words else text

    def redact_data(self, value: Any) -> Any:
        """JSON without secrets, except short ones."""
        return _redacted(value, self._data) if self._data else value


def _redacted(value: Any, secrets: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return secrets.sub(HIDDEN, value)
    if isinstance(value, dict):
        return {secrets.sub(HIDDEN, key): _redacted(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, secrets) for item in value]
    return value


def _any_of(values: set[str]) -> re.Pattern[str] | None:
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if values else None


def _file(name: str) -> str:
    path = Path(name)
    if not path.is_absolute():
        raise OperationFailed(f"file:{name} is not a full path. Write it from the root, as in file:/run/secrets/token.")
    try:
        if path.exists() and not path.is_file():
            raise OperationFailed(f"file:{name} is no file.")  # opening a pipe would block
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise OperationFailed(
            f"file:{name} cannot be read: {error.strerror}. Check the path and who may read it."
        ) from error
    except UnicodeDecodeError as error:
        raise OperationFailed(f"file:{name} is not text.") from error
    if len(data) > _MAX_FILE_BYTES or not text:
        raise OperationFailed(f"file:{name} is {'empty' if not text else 'larger than 64 KB'}, which no secret is.")
    return text
