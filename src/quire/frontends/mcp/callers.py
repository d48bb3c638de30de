"""Who makes a request: the principal with its scopes, and the client it comes through."""

from __future__ import annotations

from typing import Any

from fastmcp import Context
from fastmcp.server.auth import AccessToken
from fastmcp.server.dependencies import get_http_request, get_server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from quire.core.errors import InvalidRequest
from quire.core.model import Principal
from quire.core.notebooks.access import LOCAL_CALLER, Caller
from quire.core.notebooks.current import Client


class Proven(AccessToken):
    """A token that was checked, and whom it proves."""

    caller: Any  # Caller; checked where it was made, and not again


def principal() -> Principal:
    """Whose request is being answered now."""
    return caller().principal


def caller() -> Caller:
    """Who makes the request that is being answered now."""
    try:
        return of(get_http_request())
    except RuntimeError:  # not over HTTP
        return of(None)


def of(request: Request | None) -> Caller:
    """Who makes this request. Where nobody is asked who they are, the local user; where somebody is, and it cannot be
    told, nobody."""
    if request is None:
        if _asks_everybody():
            raise InvalidRequest("It cannot be told whose request this is. Nothing was done.")
        return LOCAL_CALLER
    user = request.scope.get("user")
    if isinstance(user, AuthenticatedUser) and isinstance(user.access_token, Proven):
        proven: Caller = user.access_token.caller
        return proven
    if request.app.state.fastmcp_auth is not None:
        raise InvalidRequest("It cannot be told whose request this is. Nothing was done.")
    return LOCAL_CALLER


def client(ctx: Context) -> Client:
    """One stdio process is one client; over HTTP a session is one. Without sessions all of a user are one."""
    request = ctx.request_context
    if request is None or request.request is None:
        who = caller()
        return Client(principal=who.principal, scopes=who.scopes)
    who = of(request.request)
    if is_modern(ctx):
        return Client(principal=who.principal, scopes=who.scopes, is_shared=True)
    session = request.request.headers.get("mcp-session-id")
    return Client(principal=who.principal, scopes=who.scopes, session=session)


def is_modern(ctx: Context) -> bool:
    """Whether the request is of protocol 2026-07-28 or newer, which has no sessions."""
    request = ctx.request_context
    return request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS


def _asks_everybody() -> bool:
    try:
        return get_server().auth is not None
    except RuntimeError:
        return False
