"""Limit how often a user may send messages over HTTP. A refusal says how long to wait."""

from __future__ import annotations

from typing import Any

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from quire.core.errors import OverLimit
from quire.core.limits.quotas import RateLimiter
from quire.frontends.mcp.callers import caller_of

_TOO_MANY_REQUESTS = -32000  # the protocol has no code of its own for it


class RateLimitMiddleware:
    def __init__(self, rates: RateLimiter) -> None:
        self._rates = rates

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request is not None:  # over stdio the client is the user who started this process
            try:
                self._rates.acquire(caller_of(ctx).principal)
            except OverLimit as error:
                if ctx.request_id is None:  # a notification has no answer
                    return None
                raise MCPError(code=_TOO_MANY_REQUESTS, message=str(error)) from None
        return await call_next(ctx)
