"""References to secrets, resolved where a backend is connected to; and their values kept out of what is said."""

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
_MAX_FILE_BYTES = 64 * 2**10  # bytes of a file
_MIN_CHARS_IN_TEXT = 4  # characters a secret has at least, to be hidden in a message
_MIN_CHARS_IN_DATA = 8  # and in data: what is shorter would damage it


class Secrets:
    """Those of one connection: resolving remembers what to hide."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.variables: set[str] = set()  # of the environment, that were referred to
        self._values: set[str] = set()
        self._words: re.Pattern[str] | None = None
        self._data: re.Pattern[str] | None = None

    def resolve(self, value: str) -> str:
        """`env:NAME` and `file:/path`, also after one word as in `Bearer env:NAME`; anything else is itself.

        Raises OperationFailed, naming the reference, where there is nothing.
        """
        found = REFERENCE.fullmatch(value)
        if found is None:
            return value
        return found["before"] + self._hide(self._variable(found["env"]) if found["env"] else _file(found["file"]))

    def expand(self, value: str) -> str:
        """`${VAR}`, `${VAR:-default}` and `${env:VAR}`, as other clients' files have them."""
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
        """Values of an environment, or of headers; what is given as it is counts as secret where its name says so."""
        resolved: dict[str, str] = {}
        for name, value in given.items():
            expanded = self.expand(value)
            resolved[name] = self.resolve(value) if expanded == value else expanded  # one of both: no value refers on
        self.hide_all(resolved)
        return resolved

    def hide_all(self, values: Mapping[str, str]) -> None:
        """Those whose names say that they are secret."""
        for name, value in values.items():
            self._hide_if(name, value)

    def hide_in(self, command: Sequence[str], url: str) -> None:
        """What is secret in these, as far as its name says."""
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
            self._hide(value.rpartition(" ")[2])  # without the word before it, as of Bearer

    def _hide(self, value: str) -> str:
        secret = value.strip()
        if len(secret) >= _MIN_CHARS_IN_TEXT:
            self._values |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
            self._values |= {
                line for line in secret.splitlines() if len(line) >= _MIN_CHARS_IN_DATA
            }  # it may be cut there
            self._words = _any_of(self._values)
            self._data = _any_of({known for known in self._values if len(known) >= _MIN_CHARS_IN_DATA})
        return value

    def redact(self, text: str) -> str:
        """A message without them."""
        return self._words.sub(HIDDEN, text) if self._words else text

    def redact_data(self, value: Any) -> Any:
        """JSON without those that are long enough not to be met by chance."""
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
            raise OperationFailed(f"file:{name} is no file.")  # opening a pipe would wait for ever
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
