"""A Jupyter server with several users, each with a token; put into its path by the tests."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth import Authorizer, IdentityProvider, User


class Several(IdentityProvider):
    """`token` is the user's name: ann, bob …"""

    def get_user(self, handler: Any) -> User | None:
        name = handler.request.headers.get("Authorization", "").removeprefix("token ")
        handler._token_authenticated = bool(name)
        return User(username=name) if name else None


class NotBob(Authorizer):
    """bob may look but not run."""

    def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        return user.username != "bob" or action == "read"
