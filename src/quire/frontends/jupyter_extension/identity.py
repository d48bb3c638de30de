"""Maps a user of the Jupyter server to a caller of Quire."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest
from quire.core.notebooks import access
from quire.core.notebooks.access import Caller

if TYPE_CHECKING:
    from jupyter_server.auth.identity import IdentityProvider, User

_ISSUER = "jupyter"


def find_caller(provider: IdentityProvider, user: User) -> Caller | None:
    """None for the local user, who runs the server. A server with one token or password has only this user; on
    JupyterHub it is the server's owner."""
    if type(provider).__module__.startswith("jupyter_server.") or user.username == os.environ.get("JUPYTERHUB_USER"):
        return None
    principal = access.issued_principal(user.username, _ISSUER)
    if principal is None:
        raise InvalidRequest(
            f"{user.username[:100]!r} cannot name a user of Quire: letters, digits and . _ + | : = @ - only."
        )
    return Caller(principal=principal)
