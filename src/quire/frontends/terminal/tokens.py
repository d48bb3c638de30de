"""`quire token`: add, list and remove tokens."""

from __future__ import annotations

import sys
import time

from rich.table import Table
from rich.text import Text

from quire.core.errors import InvalidRequest
from quire.core.model import Principal
from quire.core.notebooks.access import check_token_name
from quire.core.ports.store import Tokens
from quire.frontends.terminal import tables


def run(tokens: Tokens, action: str, name: str | None, *, admin: bool) -> None:
    match action, name:
        case "list", None:
            show(tokens)
        case "add", str():
            add(tokens, check_token_name(name), admin=admin)
        case "remove", str():
            tokens.remove(Principal(name))
            print(f"Removed the token of {name}: a running server refuses it from now on. Notebooks stay.")
        case _:
            raise InvalidRequest("The actions are add NAME, list and remove NAME.")


def add(tokens: Tokens, name: Principal, *, admin: bool) -> None:
    """Print the token alone to standard output, so that it can be piped."""
    token = tokens.add(name, admin=admin)
    kind = "an admin" if admin else "a user"
    print(
        f"{name} is {kind} now. This is the token, shown only once; clients send it as a bearer token:", file=sys.stderr
    )
    print(token)


def show(tokens: Tokens) -> None:
    found = tokens.list_tokens()
    if not found:
        print("There are no tokens. `quire token add NAME` adds one.")
        return
    table = Table("name", "scopes", "since", box=None, header_style="bold")
    for each in found:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(each.created_at))
        table.add_row(Text(str(each.caller.principal)), ", ".join(sorted(each.caller.scopes)), since)
    tables.show(table)
