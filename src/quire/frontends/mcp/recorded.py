"""Every call of a client: counted, traced, and a line of the audit log, whichever way it ends; none is answered before
what the answer says of a run is on disk."""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.low_level import FastMCPServerMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from opentelemetry import trace
from pydantic import ValidationError

from quire.core.errors import OperationFailed, QuireError
from quire.core.model import Cell, CellState, Notebook, Principal, RunId
from quire.core.ops.audit import Calls, Record, digest, outcome_of, size
from quire.core.runs.active_run import ActiveRun
from quire.frontends.mcp import callers

_METHODS = ("tools/call", "resources/read", "prompts/get")
_PLAIN = re.compile(r"[\w./:+ -]{1,100}")  # what a client calls a tool or itself; anything else may be anything


@dataclass
class Call:
    """What is learnt of a call on its way."""

    notebook: str | None = None
    cell: int | None = None
    run: RunId | None = None
    digest: str | None = None
    outcome: str | None = None
    active: ActiveRun | None = None  # the run it waits for
    is_recorded: bool = False  # its answer waits until what it says of that run is on disk
    beside: str = ""  # what is to be said with the answer, whatever that is
    begun: float = field(default_factory=time.perf_counter)

    def ran(self, notebook: Notebook, cell: Cell, *, waits: bool = False) -> None:
        """It ran this cell, of several the last; or it `waits` for its turn."""
        self.notebook, self.cell, self.digest = notebook.name, cell.number, digest(cell.source)
        self.run = cell.run.id if cell.run is not None and not waits else None
        self.outcome = outcome_of(CellState.RUNNING if waits else cell.state)

    def failed(self, error: QuireError) -> None:
        self.outcome = "error" if isinstance(error, OperationFailed) else "refused"


_current: ContextVar[Call] = ContextVar("quire_call")


def current() -> Call:
    """The call that is being answered now; one that nobody records, where it came another way."""
    return _current.get(None) or Call()


class Recording:
    """A middleware of the SDK's own, below the framework's: malformed calls come by here, too."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.own: frozenset[str] = frozenset()  # the tools that are Quire's, once the server runs

    def install(self, server: FastMCP[Any]) -> None:
        chain = server._mcp_server.middleware  # the framework's own is told of failures late, and not of all
        place = next(n for n, each in enumerate(chain) if isinstance(each, FastMCPServerMiddleware))
        chain.insert(place + 1, self)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method not in _METHODS or ctx.request_id is None:
            return await call_next(ctx)
        call, outcome, sent = Call(is_recorded=True), "cancelled", 0
        token = _current.set(call)
        try:
            self._calls.check()
            result = await _kept(call, await call_next(ctx))
            outcome, sent = call.outcome or _outcome(result), _sent(result)
            return result
        except OperationFailed as error:
            outcome = "refused"
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error
        except (MCPError, ValidationError) as error:
            outcome = call.outcome or _refused(error)
            raise
        except Exception:
            outcome = call.outcome or "error"
            raise
        finally:
            _current.reset(token)
            self._over(ctx, call, outcome, sent)

    def _over(self, ctx: ServerRequestContext[Any, Any], call: Call, outcome: str, sent: int) -> None:
        if call.outcome is None and call.active is not None and call.active.cell is not None:
            call.ran(call.active.notebook, call.active.cell)  # the call ended before its run did
        params = ctx.params or {}
        name, arguments = params.get("name"), params.get("arguments")
        if ctx.method != "tools/call":
            tool = label = ctx.method
        else:
            tool = _plain(name) or "?"
            label = tool if tool in self.own else "other"
        code = arguments.get("code") if isinstance(arguments, dict) else None
        record = Record(
            at=time.time(),
            kind="call",
            who=_who(),
            via="stdio" if ctx.request is None else "http",
            tool=tool,
            outcome=outcome,
            ms=(time.perf_counter() - call.begun) * 1000,
            client=_client(ctx),
            session=_session(ctx),
            era=ctx.protocol_version,
            notebook=call.notebook,
            cell=call.cell,
            run=call.run,
            digest=call.digest or (digest(code) if isinstance(code, str) else None),
            received=size(arguments) if ctx.method != "resources/read" else size(params.get("uri")),
            sent=sent,
        )
        self._calls.over(record, label)
        _trace(record)


async def _kept(call: Call, result: HandlerResult) -> HandlerResult:
    """The answer, when the run it speaks of is on disk; another, where that cannot be."""
    try:
        if call.active is not None:
            await call.active.kept()
        return result
    except QuireError as error:
        call.failed(error)
        said = {"content": [{"type": "text", "text": str(error)}], "isError": True}
        rest = result.items() if isinstance(result, dict) else ()
        return {name: value for name, value in rest if name != "structuredContent"} | said


def _outcome(result: HandlerResult) -> str:
    """How a call ended of which nothing was learnt on its way."""
    if not isinstance(result, dict):
        return "ok"
    if result.get("resultType") == "input_required":
        return "asked"
    return "error" if result.get("isError") else "ok"


def _sent(result: HandlerResult) -> int:
    return size({name: value for name, value in result.items() if name != "_meta"}) if isinstance(result, dict) else 0


def _refused(error: MCPError | ValidationError) -> str:
    return "error" if isinstance(error, MCPError) and error.error.code == INTERNAL_ERROR else "refused"


def _plain(name: object) -> str | None:
    return name if isinstance(name, str) and _PLAIN.fullmatch(name) else None


def _who() -> Principal:
    try:
        return callers.principal()
    except QuireError:  # nobody knows; such a call is refused
        return Principal("?")


def _client(ctx: ServerRequestContext[Any, Any]) -> str | None:
    given = ctx.session.client_params
    if given is None:
        return None
    return _plain(f"{given.client_info.name}/{given.client_info.version}") or "?"


def _session(ctx: ServerRequestContext[Any, Any]) -> str | None:
    given = ctx.request.headers.get("mcp-session-id") if ctx.request is not None else None
    return digest(given) if given else None


def _trace(record: Record) -> None:
    """To the framework's span of this request, where somebody collects spans."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    span.set_attribute("quire.outcome", record.outcome)
    for name, value in (("notebook", record.notebook), ("cell", record.cell), ("run", record.run)):
        if value is not None:
            span.set_attribute(f"quire.{name}", value)
