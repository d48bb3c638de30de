"""Who may do what: principals and their names, scopes, and what a share of a notebook allows. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, Notebook, Principal

_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a name the operator gives: no @, which marks the others
_SUBJECT = re.compile(r"[A-Za-z0-9._+|:=@-]{1,128}")
_ISSUER = re.compile(r"[A-Za-z0-9.:~_-]{1,120}")
_MAX_NAME_CHARS = 250  # characters of any principal


class Scope(StrEnum):
    """What a caller may do at all."""

    USE = "use"
    ADMIN = "admin"  # whatever the server's own user may


EVERY_SCOPE = frozenset(Scope)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls, and with which scopes."""

    principal: Principal
    scopes: frozenset[Scope] = frozenset({Scope.USE})

    @property
    def is_trusted(self) -> bool:
        """Whether what they ask for is asked for by the operator: the local user, or an admin."""
        return Scope.ADMIN in self.scopes


LOCAL_CALLER = Caller(principal=LOCAL, scopes=EVERY_SCOPE)


class Access(StrEnum):
    """What somebody may do with a notebook; each includes those before it."""

    READ = "read"  # look at it, export it
    WRITE = "write"  # run and edit its cells
    OWN = "own"  # share it, branch it off

    def covers(self, needed: Access) -> bool:
        order = list(Access)
        return order.index(self) >= order.index(needed)


def effective_access(caller: Caller, owner: Principal, shared: Access | None) -> Access | None:
    """What the caller may do with a notebook of that owner, that was shared with them so; None: not even know of it."""
    return Access.OWN if caller.is_trusted or caller.principal == owner else shared


def check_access(notebook: Notebook, has: Access, needed: Access) -> None:
    """Raises InvalidRequest; only for those who know that the notebook exists."""
    if has.covers(needed):
        return
    if needed is Access.OWN:
        raise InvalidRequest(f"Only the owner of {notebook.title} can do that. Nothing was changed.")
    raise InvalidRequest(
        f"{notebook.title} is shared with you to be read only: its cells can be looked at and exported. Nothing was "
        "changed. Ask its owner for access to write, or work in a notebook of your own (create_notebook)."
    )


# Names


def parse_name(name: str) -> tuple[Principal | None, str]:
    """The owner, where one is named, and the notebook's own name: `owner/name`, or `name`."""
    owner, slash, own = name.rpartition("/")
    if slash and not _is_principal(owner):
        raise InvalidRequest(
            f"{name[:_MAX_NAME_CHARS]!r} names no notebook: your own go by their names, another user's by USER/NAME."
        )
    return (Principal(owner), own) if slash else (None, name)


def check_principal(text: str) -> Principal:
    """As somebody names another: one the operator named, one an issuer vouches for, or the local user."""
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
    """A name the operator gives to a token."""
    if not _TOKEN_NAME.fullmatch(name) or name == LOCAL:
        raise InvalidRequest(
            f"{name[:_MAX_NAME_CHARS]!r} cannot name a token: 1 to 64 letters, digits and . _ - , beginning with a "
            f"letter or digit, and not {LOCAL!r}, who is the user of this machine."
        )
    return Principal(name)


def issuer_label(issuer: str) -> str:
    """An issuer's address as it stands in a principal. Raises InvalidRequest where it cannot."""
    parts = urlsplit(issuer)
    label = f"{parts.netloc}{parts.path.rstrip('/')}".replace("/", "~")
    if parts.scheme not in ("http", "https") or not parts.netloc or not _ISSUER.fullmatch(label):
        raise InvalidRequest(
            f"The issuer {issuer[:_MAX_NAME_CHARS]!r} is not an address that can be told in a principal's name."
        )
    return label


def issued_principal(subject: object, label: str) -> Principal | None:
    """The principal of a subject that an issuer vouches for: never the local user's name, nor a token's. None where
    the subject cannot be one."""
    if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
        return None
    return Principal(f"{subject}@{label}")
