"""Count, trace and write to the audit log every call of a client, however it ends.

The answer is sent when the run that it speaks of is on disk.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from opentelemetry import trace
from pydantic import ValidationError

from quire.core.errors import OperationFailed, QuireError
from quire.core.model import Cell, CellState, Notebook, Principal, RunId
from quire.core.ops.audit import CallLog, Record, content_bytes, digest, run_outcome
from quire.core.runs.active_run import ActiveRun
from quire.frontends.mcp.callers import caller_of

_AUDITED_METHODS = ("tools/call", "resources/read", "prompts/get")
_SAFE_NAME = re.compile(r"[\w./:+ -]{1,100}")  # names that clients choose are logged only if they look like names


@dataclass
class CallRecord:
    """What is learnt of a call while it is answered."""

    notebook: str | None = None
    cell: int | None = None
    run: RunId | None = None
    digest: str | None = None
    outcome: str | None = None
    active: ActiveRun | None = None  # the run that the call waits for
    warning: str = ""  # about the notebook, shown with any answer
    started: float = field(default_factory=time.perf_counter)

    def set_run(self, notebook: Notebook, cell: Cell, *, queued: bool = False) -> None:
        """The call ran this cell, as the last of several, or queued it."""
        self.notebook, self.cell, self.digest = notebook.name, cell.number, digest(cell.source)
        self.run = cell.run.id if cell.run is not None and not queued else None
        self.outcome = run_outcome(CellState.RUNNING if queued else cell.state)

    def set_error(self, error: QuireError) -> None:
        self.outcome = "error" if isinstance(error, OperationFailed) else "refused"


@dataclass(kw_only=True)
class AuditedRequest(ServerRequestContext[Any, Any]):
    """The SDK's request with the record of its call. It is what handlers of audited methods get."""

    record: CallRecord


class AuditMiddleware:
    """A step of the SDK's middleware, so that malformed calls are recorded, too."""

    def __init__(self, calls: CallLog, tools: Collection[str]) -> None:
        """`tools`: names that metrics may use as a label; other names were chosen by people."""
        self._calls = calls
        self._tools = tools

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method not in _AUDITED_METHODS or ctx.request_id is None:
            return await call_next(ctx)
        record, outcome, sent = CallRecord(), "cancelled", 0
        try:
            self._calls.check()
            result = await _wait_persisted(record, await call_next(AuditedRequest(**vars(ctx), record=record)))
            outcome, sent = record.outcome or _outcome_of_result(result), _size_of_result(result)
            return result
        except OperationFailed as error:
            outcome = "refused"
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error
        except (MCPError, ValidationError) as error:
            outcome = record.outcome or _outcome_of_error(error)
            raise
        except Exception:
            outcome = record.outcome or "error"
            raise
        finally:
            self._write(ctx, record, outcome, sent)

    def _write(self, ctx: ServerRequestContext[Any, Any], call: CallRecord, outcome: str, sent: int) -> None:
        if call.outcome is None and call.active is not None and call.active.cell is not None:
            call.set_run(call.active.notebook, call.active.cell)  # the call ended before its run did
        params = ctx.params or {}
        arguments = params.get("arguments")
        tool = (_safe_name(params.get("name")) or "?") if ctx.method == "tools/call" else ctx.method
        code = arguments.get("code") if isinstance(arguments, dict) else None
        record = Record(
            at=time.time(),
            kind="call",
            who=_principal(ctx),
            via="stdio" if ctx.request is None else "http",
            tool=tool,
            outcome=outcome,
            ms=(time.perf_counter() - call.started) * 1000,
            client=_client(ctx),
            session=_session(ctx),
            era=ctx.protocol_version,
            notebook=call.notebook,
            cell=call.cell,
            run=call.run,
            digest=call.digest or (digest(code) if isinstance(code, str) else None),
            received=content_bytes(arguments) if ctx.method != "resources/read" else content_bytes(params.get("uri")),
            sent=sent,
        )
        self._calls.add(record, "other" if ctx.method == "tools/call" and tool not in self._tools else tool)
        _trace(record)


async def _wait_persisted(record: CallRecord, result: HandlerResult) -> HandlerResult:
    """The answer, when the run that it speaks of is on disk; an error in its place if the run cannot be written."""
    try:
        if record.active is not None:
            await record.active.wait_persisted()
        return result
    except QuireError as error:
        record.set_error(error)
        failed = {"content": [{"type": "text", "text": str(error)}], "isError": True}
        envelope = result.items() if isinstance(result, dict) else ()
        return {name: value for name, value in envelope if name != "structuredContent"} | failed


def _outcome_of_result(result: HandlerResult) -> str:
    """How a call ended that set no outcome."""
    if not isinstance(result, dict):
        return "ok"
    if result.get("resultType") == "input_required":
        return "asked"
    return "error" if result.get("isError") else "ok"


def _size_of_result(result: HandlerResult) -> int:
    if not isinstance(result, dict):
        return 0
    return content_bytes({name: value for name, value in result.items() if name != "_meta"})


def _outcome_of_error(error: MCPError | ValidationError) -> str:
    return "error" if isinstance(error, MCPError) and error.error.code == INTERNAL_ERROR else "refused"


def _safe_name(name: object) -> str | None:
    return name if isinstance(name, str) and _SAFE_NAME.fullmatch(name) else None


def _principal(ctx: ServerRequestContext[Any, Any]) -> Principal:
    try:
        return caller_of(ctx).principal
    except QuireError:  # such a call is refused
        return Principal("?")


def _client(ctx: ServerRequestContext[Any, Any]) -> str | None:
    params = ctx.session.client_params
    if params is None:
        return None
    return _safe_name(f"{params.client_info.name}/{params.client_info.version}") or "?"


def _session(ctx: ServerRequestContext[Any, Any]) -> str | None:
    session = ctx.request.headers.get("mcp-session-id") if ctx.request is not None else None
    return digest(session) if session else None


def _trace(record: Record) -> None:
    """Add the record to fastmcp's span of this request, if traces are collected."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    span.set_attribute("quire.outcome", record.outcome)
    for name, value in (("notebook", record.notebook), ("cell", record.cell), ("run", record.run)):
        if value is not None:
            span.set_attribute(f"quire.{name}", value)
