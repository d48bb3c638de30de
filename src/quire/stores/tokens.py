"""Tokens in a file that only its owner may read: names, scopes and digests, never what proves them.

A token is 256 random bits, so a plain SHA-256 of it gives nothing away, and is quick enough for every request.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire import platform_compat
from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.model import Principal
from quire.core.notebooks.access import EVERY_SCOPE, Caller, Scope, check_token_name
from quire.core.ports.store import TokenInfo

log = logging.getLogger(__name__)
_PREFIX = "quire_"  # by which scanners find one that was published by mistake
_START = 4  # characters of a digest by which it is looked up
_Seen = tuple[int, int, int] | None


class FileTokens:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._seen: _Seen = None  # the file, as it was when it was read
        self._by_digest: dict[str, TokenInfo] = {}
        self._by_start: dict[str, list[str]] = {}

    def add(self, name: Principal, *, admin: bool) -> str:
        check_token_name(name)
        token = _PREFIX + secrets.token_urlsafe(32)
        with self._changing() as kept:
            if name in kept:
                raise InvalidRequest(
                    f"{name} has a token already. `quire token remove {name}` ends it; then add a new one."
                )
            scopes = sorted(EVERY_SCOPE if admin else {Scope.USE})
            kept[name] = {"sha256": _digest(token), "scopes": scopes, "created_at": time.time()}
        return token

    def remove(self, name: Principal) -> None:
        with self._changing() as kept:
            if name not in kept:
                raise NotFound(f"There is no token {name!r}. There are: {', '.join(sorted(kept)) or 'none'}.")
            del kept[name]

    def all(self) -> list[TokenInfo]:
        self._look()
        return sorted(self._by_digest.values(), key=lambda each: each.caller.principal)

    def whose(self, token: str) -> Caller | None:
        self._look()
        digest, found = _digest(token), None
        for kept in self._by_start.get(digest[:_START], ()):  # how long it takes tells of a start that proves nothing
            if hmac.compare_digest(kept, digest):
                found = self._by_digest[kept].caller
        return found

    def _look(self) -> None:
        """Read the file where it is not as it was: a removed token must not be taken for one moment longer."""
        seen = _seen(self._name)
        if seen == self._seen:
            return
        try:
            self._by_digest = dict(_entries(self._read())) if seen is not None else {}
        except QuireError as error:  # nobody is let in on a guess
            log.error("%s", error)
            self._by_digest = {}
        self._by_start = {}
        for digest in self._by_digest:
            self._by_start.setdefault(digest[:_START], []).append(digest)
        self._seen = seen

    def _read(self) -> dict[str, Any]:
        try:
            said = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise OperationFailed(
                f"{self._path} cannot be read: {error.strerror}. No token is taken until it can."
            ) from error
        except ValueError:
            raise OperationFailed(f"{self._path} is damaged. Remove it, and add the tokens again.") from None
        if not isinstance(said, dict):
            raise OperationFailed(f"{self._path} is damaged. Remove it, and add the tokens again.")
        return said

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """What is kept, to be changed by one process at a time; whole or not at all."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.with_suffix(".lock").open("wb") as lock:
                platform_compat.lock(lock.fileno())
                kept = self._read()
                yield kept
                self._write(json.dumps(kept, indent=2, sort_keys=True))
        except OSError as error:
            raise OperationFailed(
                f"{self._path} could not be written: {error.strerror}. Nothing was changed."
            ) from error

    def _write(self, text: str) -> None:
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | platform_compat.BYTES, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        new.replace(self._path)


def _entries(kept: dict[str, Any]) -> Iterator[tuple[str, TokenInfo]]:
    for name, entry in kept.items():
        try:
            scopes = frozenset(Scope(each) for each in entry["scopes"])
            caller = Caller(principal=check_token_name(name), scopes=scopes)
            yield str(entry["sha256"]), TokenInfo(caller=caller, created_at=float(entry["created_at"]))
        except (InvalidRequest, ValueError, TypeError, KeyError):
            log.error("the token of %r is damaged and is not taken", name)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _seen(path: str) -> _Seen:
    try:
        found = os.stat(path)  # noqa: PTH116 - looked at with every request
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
