"""How often a user may ask over HTTP; what is too much is refused with how long to wait."""

from __future__ import annotations

from typing import Any

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from mcp import MCPError

from quire.core.errors import OverLimit
from quire.core.limits.quotas import Rates
from quire.frontends.mcp import callers

_TOO_MANY = -32000  # the protocol has no code of its own for it
_COUNTED = "streamable-http"  # whoever speaks stdio started this process for themselves


class Paced(Middleware):
    def __init__(self, rates: Rates) -> None:
        self._rates = rates

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if context.method == "tools/call":  # of all messages the one that must not cost
            return await self.on_message(context, call_next)
        return await super().__call__(context, call_next)

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if context.fastmcp_context is not None and context.fastmcp_context.transport == _COUNTED:
            try:
                self._rates.take(callers.principal())
            except OverLimit as error:
                if context.type == "notification":
                    return None  # nobody hears an answer
                raise MCPError(code=_TOO_MANY, message=str(error)) from None
        return await call_next(context)
