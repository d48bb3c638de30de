"""One request of a client, as tools need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types import CallToolRequestParams, InputResponses, RequestId

from quire.core.notebooks.current import Client
from quire.frontends.mcp.callers import client_of, is_modern


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    session: ServerSession
    id: RequestId | None
    client: Client
    is_modern: bool  # of protocol 2026-07-28 or newer
    progress_token: str | int | None
    state: str | None = None  # what the client brings back with the answers to a question
    input_responses: InputResponses | None = None

    @classmethod
    def of(cls, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams | None = None) -> ClientRequest:
        """Raises InvalidRequest if it cannot be told whose request this is."""
        return cls(
            session=ctx.session,
            id=ctx.request_id,
            client=client_of(ctx),
            is_modern=is_modern(ctx),
            progress_token=ctx.meta.get("progress_token") if ctx.meta else None,
            state=params.request_state if params is not None else None,
            input_responses=params.input_responses if params is not None else None,
        )

    async def report_progress(self, progress: float, total: float | None, message: str) -> None:
        """Sent only to clients that asked for it."""
        if self.progress_token is not None:
            await self.session.send_progress_notification(
                self.progress_token, progress, total, message, related_request_id=str(self.id)
            )
