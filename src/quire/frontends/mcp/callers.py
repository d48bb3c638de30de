"""Who makes a request: the principal, and the client it comes through."""

from __future__ import annotations

from fastmcp import Context

from quire.core.current import Client
from quire.core.model import LOCAL, Principal


def principal() -> Principal:
    """Whose request is being answered now."""
    return LOCAL


def client(ctx: Context) -> Client:
    """One stdio process is one client; over HTTP a session is one, where the protocol has sessions."""
    request = ctx.request_context
    http = request.request if request is not None else None
    return Client(principal=principal(), session=http.headers.get("mcp-session-id") if http is not None else None)
