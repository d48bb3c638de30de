"""Access rules: principals and their names, scopes, and the access that a share grants. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, Notebook, Principal

_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # no @, which marks names from an issuer
_SUBJECT = re.compile(r"[A-Za-z0-9._+|:=@-]{1,128}")
_ISSUER = re.compile(r"[A-Za-z0-9.:~_-]{1,120}")
_MAX_NAME_CHARS = 250  # of a principal


class Scope(StrEnum):
    """What a caller may do on this server."""

    USE = "use"
    ADMIN = "admin"  # all that the server's own user may do


EVERY_SCOPE = frozenset(Scope)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The principal of a call and its scopes."""

    principal: Principal
    scopes: frozenset[Scope] = frozenset({Scope.USE})

    @property
    def is_trusted(self) -> bool:
        """Whether it is the local user or an admin, whose requests count as the operator's."""
        return Scope.ADMIN in self.scopes


LOCAL_CALLER = Caller(principal=LOCAL, scopes=EVERY_SCOPE)


class Access(StrEnum):
    """What a principal may do with a notebook. Each level includes those before it."""

    READ = "read"  # read and export
    WRITE = "write"  # and run and edit cells
    OWN = "own"  # and share and branch

    def covers(self, needed: Access) -> bool:
        order = list(Access)
        return order.index(self) >= order.index(needed)


def effective_access(caller: Caller, owner: Principal, shared: Access | None) -> Access | None:
    """The caller's access to a notebook of `owner`; None if the caller must not learn that it exists."""
    return Access.OWN if caller.is_trusted or caller.principal == owner else shared


def check_access(notebook: Notebook, has: Access, needed: Access) -> None:
    """Raises InvalidRequest without the needed access. The caller must be allowed to know that the notebook exists."""
    if has.covers(needed):
        return
    if needed is Access.OWN:
        raise InvalidRequest(f"Only the owner of {notebook.title} can do that. Nothing was changed.")
    raise InvalidRequest(
        f"{notebook.title} is shared with you read only: you can read and export its cells. Nothing was "
        "changed. Ask its owner for access to write, or work in a notebook of your own (create_notebook)."
    )


# Names


def parse_name(name: str) -> tuple[Principal | None, str]:
    """The owner, or None, and the notebook's name, from `owner/name` or `name`. Raises InvalidRequest."""
    owner, slash, own = name.rpartition("/")
    if slash and not _is_principal(owner):
        raise InvalidRequest(
            f"{name[:_MAX_NAME_CHARS]!r} names no notebook: your own go by their names, another user's by USER/NAME."
        )
    return (Principal(owner), own) if slash else (None, name)


def check_principal(text: str) -> Principal:
    """The principal with this name: a token's, an issuer's subject, or the local user. Raises InvalidRequest."""
    if not _is_principal(text):
        raise InvalidRequest(
            f"{text[:_MAX_NAME_CHARS]!r} cannot name a user: the name of their token, or subject@issuer."
        )
    return Principal(text)


def _is_principal(text: str) -> bool:
    subject, at, issuer = text.rpartition("@")
    known = bool(_SUBJECT.fullmatch(subject) and _ISSUER.fullmatch(issuer)) if at else bool(_TOKEN_NAME.fullmatch(text))
    return known and len(text) <= _MAX_NAME_CHARS


def check_token_name(name: str) -> Principal:
    """A new token's name as a principal. Raises InvalidRequest."""
    if not _TOKEN_NAME.fullmatch(name) or name == LOCAL:
        raise InvalidRequest(
            f"{name[:_MAX_NAME_CHARS]!r} cannot name a token: 1 to 64 letters, digits and . _ - , beginning with a "
            f"letter or digit, and not {LOCAL!r}, who is the user of this machine."
        )
    return Principal(name)


def issuer_label(issuer: str) -> str:
    """An issuer's URL as part of a principal's name. Raises InvalidRequest if it cannot be one."""
    parts = urlsplit(issuer)
    label = f"{parts.netloc}{parts.path.rstrip('/')}".replace("/", "~")
    if parts.scheme not in ("http", "https") or not parts.netloc or not _ISSUER.fullmatch(label):
        raise InvalidRequest(f"The issuer {issuer[:_MAX_NAME_CHARS]!r} is not a URL that can be part of a user's name.")
    return label


def issued_principal(subject: object, label: str) -> Principal | None:
    """The principal of an issuer's subject, never the local user's name or a token's; None for an invalid subject."""
    if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
        return None
    return Principal(f"{subject}@{label}")
