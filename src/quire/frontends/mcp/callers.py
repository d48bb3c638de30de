"""Who makes a request, and through which client."""

from __future__ import annotations

from typing import Any

from fastmcp.server.auth import AccessToken
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from quire.core.errors import InvalidRequest
from quire.core.notebooks.access import LOCAL_CALLER, Caller
from quire.core.notebooks.current import Client

_UNKNOWN = "It cannot be told whose request this is. Nothing was done."


class VerifiedToken(AccessToken):
    """A token that was checked, and the caller whom it proves."""

    caller: Any  # Caller; Any, so that pydantic does not check it again


def caller_of(request: ServerRequestContext[Any, Any]) -> Caller:
    """Who makes this request: the local user over stdio and without authentication.

    Raises InvalidRequest if the server authenticates callers and this request has no verified token.
    """
    if request.request is not None:
        return caller_from_request(request.request)
    if request.lifespan_context["has_auth"]:
        raise InvalidRequest(_UNKNOWN)
    return LOCAL_CALLER


def caller_from_request(request: Request) -> Caller:
    """Who makes this HTTP request. Raises InvalidRequest as `caller_of`."""
    user = request.scope.get("user")
    if isinstance(user, AuthenticatedUser) and isinstance(user.access_token, VerifiedToken):
        caller: Caller = user.access_token.caller
        return caller
    if request.app.state.fastmcp_auth is not None:
        raise InvalidRequest(_UNKNOWN)
    return LOCAL_CALLER


def client_of(request: ServerRequestContext[Any, Any]) -> Client:
    """The client: one per stdio process, and over HTTP one per session, or per user in a protocol without sessions."""
    caller = caller_of(request)
    if request.request is None:
        return Client(principal=caller.principal, scopes=caller.scopes)
    if is_modern(request):
        return Client(principal=caller.principal, scopes=caller.scopes, is_shared=True)
    session = request.request.headers.get("mcp-session-id")
    return Client(principal=caller.principal, scopes=caller.scopes, session=session)


def is_modern(request: ServerRequestContext[Any, Any]) -> bool:
    """Whether the request is of protocol 2026-07-28 or newer, which has no sessions."""
    return request.protocol_version in MODERN_PROTOCOL_VERSIONS
