"""The port Tokens: a file with names, scopes and digests that only its owner can read.

A token is 256 random bits, so its SHA-256 cannot be reversed, and it is fast enough for each request.
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
from quire.stores.blobs import write_atomically

log = logging.getLogger(__name__)
_PREFIX = "quire_"  # scanners look for it in published text
_KEY_CHARACTERS = 4  # of a digest, under which it is looked up
_FileStamp = tuple[int, int, int] | None


class FileTokens:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._stamp: _FileStamp = None  # of the file when it was read
        self._by_digest: dict[str, TokenInfo] = {}
        self._digests_by_key: dict[str, list[str]] = {}

    def add(self, name: Principal, *, admin: bool) -> str:
        check_token_name(name)
        token = _PREFIX + secrets.token_urlsafe(32)
        with self._edit() as saved:
            if name in saved:
                raise InvalidRequest(
                    f"{name} has a token already. `quire token remove {name}` ends it; then add a new one."
                )
            scopes = sorted(EVERY_SCOPE if admin else {Scope.USE})
            saved[name] = {"sha256": _digest(token), "scopes": scopes, "created_at": time.time()}
        return token

    def remove(self, name: Principal) -> None:
        with self._edit() as saved:
            if name not in saved:
                raise NotFound(f"There is no token {name!r}. There are: {', '.join(sorted(saved)) or 'none'}.")
            del saved[name]

    def list_tokens(self) -> list[TokenInfo]:
        self._refresh()
        return sorted(self._by_digest.values(), key=lambda one: one.caller.principal)

    def find_caller(self, token: str) -> Caller | None:
        self._refresh()
        digest, found = _digest(token), None
        for saved in self._digests_by_key.get(
            digest[:_KEY_CHARACTERS], ()
        ):  # the duration reveals these characters only
            if hmac.compare_digest(saved, digest):
                found = self._by_digest[saved].caller
        return found

    def _refresh(self) -> None:
        """Read the file if it has changed. A removed token must be refused at once."""
        stamp = _stamp(self._name)
        if stamp == self._stamp:
            return
        try:
            self._by_digest = dict(_parse_tokens(self._read())) if stamp is not None else {}
        except QuireError as error:  # accept no token
            log.error("%s", error)
            self._by_digest = {}
        self._digests_by_key = {}
        for digest in self._by_digest:
            self._digests_by_key.setdefault(digest[:_KEY_CHARACTERS], []).append(digest)
        self._stamp = stamp

    def _read(self) -> dict[str, Any]:
        try:
            tokens = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise OperationFailed(
                f"{self._path} cannot be read: {error.strerror}. No token is accepted until it can be read."
            ) from error
        except ValueError:
            raise OperationFailed(f"{self._path} is damaged. Remove it, and add the tokens again.") from None
        if not isinstance(tokens, dict):
            raise OperationFailed(f"{self._path} is damaged. Remove it, and add the tokens again.")
        return tokens

    @contextlib.contextmanager
    def _edit(self) -> Iterator[dict[str, Any]]:
        """Yield the saved tokens and write them again, with a lock between processes."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.with_suffix(".lock").open("wb") as lock:
                platform_compat.lock(lock.fileno())
                saved = self._read()
                yield saved
                write_atomically(self._path, json.dumps(saved, indent=2, sort_keys=True).encode())
        except OSError as error:
            raise OperationFailed(
                f"{self._path} could not be written: {error.strerror}. Nothing was changed."
            ) from error


def _parse_tokens(saved: dict[str, Any]) -> Iterator[tuple[str, TokenInfo]]:
    for name, entry in saved.items():
        try:
            scopes = frozenset(Scope(one) for one in entry["scopes"])
            caller = Caller(principal=check_token_name(name), scopes=scopes)
            yield str(entry["sha256"]), TokenInfo(caller=caller, created_at=float(entry["created_at"]))
        except (InvalidRequest, ValueError, TypeError, KeyError):
            log.error("the token of %r is damaged and is refused", name)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _stamp(path: str) -> _FileStamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - called for each request
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
