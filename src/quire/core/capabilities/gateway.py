"""Calls from code in a kernel to capabilities: checks, approval, the call, truncation and the audit log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import anyio

from quire.core import errors
from quire.core.capabilities.approvals import Approvals, qualified_name
from quire.core.capabilities.connection import ReconnectingBackend
from quire.core.capabilities.model import Approve, Capability, Catalog, Result, Tool
from quire.core.capabilities.names import RESERVED_NAMES
from quire.core.capabilities.registry import CapabilityRegistry
from quire.core.capabilities.request import parse_approve
from quire.core.capabilities.truncated_results import TruncatedResults
from quire.core.errors import (
    CallTimeout,
    ConnectionLost,
    NotFound,
    NotInstalled,
    OperationFailed,
    QuireError,
    WrongArguments,
)
from quire.core.limits.caller_policy import UntrustedCallerPolicy
from quire.core.model import KernelSpec, NotebookId, Principal
from quire.core.notebooks.access import Caller
from quire.core.ops.audit import CallLog, Record, content_bytes, digest, printable_word
from quire.core.ports.capabilities import Backends, Connection
from quire.core.runs.active_run import ActiveRun, ActiveRuns
from quire.tool_descriptions import tools
from quire.wire import messages, relay
from quire.wire.relay import Called, Refused, Returned

log = logging.getLogger(__name__)
_MAX_NAME_CHARS = 200  # of a name in the audit log
_UNLOGGED = ("rest", "catalog")
_UNCOUNTED = (*_UNLOGGED, "approve")  # not counted towards the limit of a run


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    timeout: float  # seconds, if the code sets none
    max_timeout: float  # seconds
    per_run: int  # maximum number of calls
    result: int  # characters; longer results are truncated


class ApprovalDenied(OperationFailed):
    """The call was not approved, or no person could be asked."""


class CallLimitReached(OperationFailed):
    """The run exceeded its number of calls."""


class CallCancelled(OperationFailed):
    """The run was stopped during the call."""


class InvalidArguments(errors.InvalidRequest):
    """The arguments do not fit the tool's schema; nothing was sent."""

    def __init__(self, message: str, *, is_type: bool) -> None:
        super().__init__(message)
        self.is_type = is_type


@dataclass(eq=False)
class _RunCalls:
    """The calls of one run."""

    count: int = 0
    scopes: set[anyio.CancelScope] = field(default_factory=set)  # of calls under way
    shown: set[str] = field(default_factory=set)  # errors of backends that the cell's output has


class CapabilityGateway:
    """The core's `Relay`."""

    def __init__(
        self,
        capabilities: CapabilityRegistry,
        backends: Backends,
        approvals: Approvals,
        active: ActiveRuns,
        calls: CallLog,
        limits: CallLimits,
        caller_policy: UntrustedCallerPolicy,
        code_caller: Callable[[NotebookId, Principal], Awaitable[Caller]],
    ) -> None:
        """`code_caller` returns the caller with whose rights the code of a notebook runs."""
        self._capabilities = capabilities
        self._backends = backends
        self._approvals = approvals
        self._active = active
        self._calls = calls
        self._limits = limits
        self._caller_policy = caller_policy
        self._acting = code_caller
        self._truncated = TruncatedResults(limits.result)
        self._run_calls: WeakKeyDictionary[ActiveRun, _RunCalls] = WeakKeyDictionary()
        self._native: dict[NotebookId, tuple[KernelSpec, list[dict[str, Any]]]] = {}
        self._native_listeners: list[Callable[[KernelSpec, list[dict[str, Any]]], None]] = []

    async def catalog(self, owner: Principal) -> Catalog:
        return await self._capabilities.catalog(owner)

    def native(self, spec: KernelSpec, capabilities: list[dict[str, Any]]) -> None:
        whose, before = self._native.get(spec.notebook, (spec, []))
        if capabilities != before and (capabilities or whose is spec):  # a replaced kernel is ignored
            self._native[spec.notebook] = (spec, capabilities)
            if not capabilities:
                del self._native[spec.notebook]
            for listener in list(self._native_listeners):
                listener(spec, capabilities)

    def listen(self, listener: Callable[[KernelSpec, list[dict[str, Any]]], None]) -> Callable[[], None]:
        """Call `listener` when native capabilities change; the returned function unsubscribes."""
        self._native_listeners.append(listener)
        return lambda: self._native_listeners.remove(listener)

    def native_of(self, notebook: NotebookId) -> list[dict[str, Any]]:
        """The native capabilities of a notebook, while its kernel lives."""
        return self._native[notebook][1] if notebook in self._native else []

    def interrupt(self, active: ActiveRun) -> None:
        """Cancel the calls of a run, also those of its threads."""
        if active in self._run_calls:
            for scope in self._run_calls[active].scopes:
                scope.cancel()

    async def call(self, spec: KernelSpec, called: Called) -> relay.Answer:
        active = self._active.current(spec.notebook)
        started, outcome = time.perf_counter(), "cancelled"
        value: dict[str, Any] = {}
        try:
            self._calls.check()
            value = await self._call_in_run(active, spec, called)
            if not messages.is_shallow(value):
                raise OperationFailed("The answer is nested too deeply to be handed to a cell.")
            outcome = "approved" if called.do == "approve" else "ok"
            return Returned(call=called.call, value=value)
        except QuireError as error:
            kind = _error_kind(error)
            outcome = "refused" if isinstance(error, InvalidArguments) else kind
            hint = "" if isinstance(error, NotInstalled) else _hint(called, kind)
            return Refused(
                call=called.call, kind=kind, message=self._message_for_code(active, called, error), hint=hint
            )
        except Exception as error:  # an error in Quire fails this call, not the kernel
            log.exception("a call of %s.%s", called.capability, called.method)
            outcome = "refused"
            return Refused(call=called.call, kind=outcome, message=f"Quire itself failed ({error!r}).")
        finally:
            if called.do not in _UNLOGGED:
                ms = (time.perf_counter() - started) * 1000
                self._calls.add(_audit_record(spec, active, called, outcome, ms, content_bytes(value)))

    def _message_for_code(self, active: ActiveRun | None, called: Called, error: QuireError) -> str:
        """The message that code gets. Details, which may have paths of this machine, are printed in the cell once."""
        if not isinstance(error, OperationFailed) or not error.why:
            return str(error)
        if active is not None and error.why not in (shown := self._run_calls.setdefault(active, _RunCalls()).shown):
            shown.add(error.why)
            _print_to_run(active, called, "error", error.why)
        return error.plain

    async def _call_in_run(self, active: ActiveRun | None, spec: KernelSpec, called: Called) -> dict[str, Any]:
        """Make the call as part of the current run: counted, and cancelled when the run is stopped."""
        if active is None:
            return await self._dispatch(None, spec, called)
        calls = self._run_calls.setdefault(active, _RunCalls())
        calls.count += called.do not in _UNCOUNTED
        if calls.count > self._limits.per_run:
            raise CallLimitReached(
                f"The run has made {self._limits.per_run:,} calls, as many as one may "
                "(setting capabilities.max_calls_per_run). Go on in another cell."
            )
        with anyio.CancelScope() as scope:
            calls.scopes.add(scope)
            try:
                return await self._dispatch(active, spec, called)
            finally:
                calls.scopes.discard(scope)
        raise CallCancelled("The run was told to stop; the call was cancelled.")

    async def _dispatch(self, active: ActiveRun | None, spec: KernelSpec, called: Called) -> dict[str, Any]:
        owner = spec.owner
        match called.do:
            case "rest":
                key, start = called.given.get("key"), called.given.get("start")
                return self._truncated.part(spec.notebook, str(key), start if type(start) is int else 0)
            case "catalog":
                await self._capabilities.refresh(owner)
            case "approve":
                await self._check_native(owner, called.capability, called.method)
                await self._approve(active, spec, called, Approve(called.declared or Approve.ASK_OR_DENY))
                return {}
            case "install":
                await self._approve(active, spec, called, Approve.ASK)
                caller = await self._acting(spec.notebook, owner)
                backend = self._caller_policy.make_backend(
                    caller, called.capability, called.given, self._backends.described
                )
                try:
                    await self._capabilities.install(owner, called.capability, backend, parse_approve(called.given))
                except OperationFailed as error:
                    raise OperationFailed(f"{called.capability} cannot be installed.", why=str(error)) from error
            case "uninstall":
                await self._approve(active, spec, called, Approve.ASK)
                await self._capabilities.uninstall(owner, called.capability)
            case _:
                return await self._call_backend(active, spec, called)
        return {"catalog": (await self._capabilities.catalog(owner)).entries}

    async def _call_backend(self, active: ActiveRun | None, spec: KernelSpec, called: Called) -> dict[str, Any]:
        link = await self._capabilities.link(spec.owner, called.capability)
        timeout = min(called.timeout, self._limits.max_timeout) if called.timeout > 0 else self._limits.timeout
        connection = await link.connection()  # first, since connecting refreshes the tools
        if called.do == "tool":
            tool = _find_tool(link.capability, called.method)
            _check_arguments(connection, link, tool, called.given)
            default = Approve.ASK if tool.hints.get("destructiveHint") is True else Approve.ALLOW
            await self._approve(active, spec, called, default, link)
            result = await self._call_tool(connection, link, active, called, timeout)
            if result.is_error:
                raise OperationFailed(_error_text(result)[: self._limits.result])
            return self._truncated.fit(spec.notebook, result)
        await self._approve(active, spec, called, Approve.ALLOW, link)
        match called.do:
            case "resources":
                return await connection.resources(timeout=timeout)
            case "prompts":
                return await connection.prompts(timeout=timeout)
            case "prompt":
                given = {name: str(value) for name, value in called.given.items()}
                return await connection.prompt(called.method, given, timeout=timeout)
        found = await connection.read(str(called.given.get("uri", "")), timeout=timeout)
        return {"contents": [self._truncated.fit_text(spec.notebook, content) for content in found.get("contents", [])]}

    async def _call_tool(
        self,
        connection: Connection,
        link: ReconnectingBackend,
        active: ActiveRun | None,
        called: Called,
        timeout: float,
    ) -> Result:
        what = f"{called.capability}.{called.method}"

        def progress(done: float, total: float | None, message: str) -> None:
            if active is not None:
                total_text = f" of {total:g}" if total else ""
                active.capability_progress = " ".join(filter(None, (f"{what}: {done:g}{total_text}", message[:200])))

        def log_to_run(level: str, text: str) -> None:
            _print_to_run(active, called, level, text)

        link.log_listeners.add(log_to_run)
        try:
            return await connection.call(called.method, called.given, timeout=timeout, progress=progress)
        finally:
            link.log_listeners.discard(log_to_run)
            if active is not None:
                active.capability_progress = ""

    async def _check_native(self, owner: Principal, name: str, method: str) -> None:
        """Raises InvalidRequest for reserved, installed or invalid names, which would mislead the approving person."""
        installed = {entry["name"] for entry in (await self._capabilities.catalog(owner)).entries}
        if not method.isidentifier():
            raise errors.InvalidRequest(f"{method[:_MAX_NAME_CHARS]!r} is no name of a method. Nothing was called.")
        if not name.isidentifier() or name in RESERVED_NAMES or name in installed:
            raise errors.InvalidRequest(
                f"{name!r} is not a capability of this notebook's own code, so its calls cannot be approved that way. "
                "Nothing was called. Register your own capability under another name."
            )

    async def _approve(
        self,
        active: ActiveRun | None,
        spec: KernelSpec,
        called: Called,
        default: Approve,
        link: ReconnectingBackend | None = None,
    ) -> None:
        name, given, methods = called.capability, called.given, [_method(called)]
        if called.do in ("install", "uninstall"):
            name, given = "caps", {**called.given, "name": called.capability}
        if link is not None and called.do == "tool":
            methods.insert(0, link.python_name(called.method))
        needed = self._approvals.needed(name, methods, link.capability.approve if link is not None else {}, default)
        why_not = await self._approvals.obtain(needed, active, spec.name, qualified_name(name, methods[0]), given)
        if why_not:
            raise ApprovalDenied(why_not)


def _print_to_run(active: ActiveRun | None, called: Called, level: str, text: str) -> None:
    if active is not None and not active.done.is_set():
        line = f"[{called.capability} {level}] {text}\n"
        active.show(messages.Printed(stream="stderr", data=line.encode("utf-8", "replace")))


def _recorded_name(called: Called) -> str:
    """The name in the audit log. Prompts have a prefix, since a tool may have the same name."""
    prefix = "prompt:" if called.do == "prompt" else ""
    return printable_word(f"{called.capability[:_MAX_NAME_CHARS]}.{prefix}{_method(called)[:_MAX_NAME_CHARS]}")


def _method(called: Called) -> str:
    """The called method, or the kind of the operation."""
    return called.method if called.do in ("tool", "prompt", "approve") else called.do


def _find_tool(capability: Capability, name: str) -> Tool:
    for tool in capability.offered.tools:
        if tool.name == name:
            return tool
    raise NotFound(f"{capability.name} has no tool {name!r} now. {capability.name}.describe() lists those it has.")


def _check_arguments(connection: Connection, link: ReconnectingBackend, tool: Tool, given: dict[str, Any]) -> None:
    try:
        connection.check(tool.name, given)
    except WrongArguments as wrong:
        message = tools.argument_error(vars(tool), link.python_name(tool.name), wrong.path, wrong.what)
        raise InvalidArguments(message, is_type=wrong.is_type) from wrong


def _error_text(result: Result) -> str:
    texts = [str(block.get("text", "")) for block in result.content if block.get("type") == "text"]
    return "\n".join(filter(None, texts)) or "The tool failed without a word."


def _error_kind(error: QuireError) -> str:
    match error:
        case CallTimeout():
            return "timeout"
        case ApprovalDenied():
            return "denied"
        case CallCancelled():
            return "cancelled"
        case InvalidArguments(is_type=is_type):
            return "wrong_type" if is_type else "wrong_value"
        case ConnectionLost() | NotInstalled():
            return "gone"
        case OperationFailed() if not isinstance(error, CallLimitReached):
            return "tool"
    return "refused"


def _hint(called: Called, kind: str) -> str:
    match kind:
        case "timeout":
            return "The call was cancelled. _timeout= gives it more seconds."
        case "gone":
            name = called.capability
            return f"If it stays so, reinstall: caps.uninstall({name!r}), then caps.install({name!r}, …)."
        case "tool":
            return f"help({called.capability}.{called.method}) says what it takes." if called.do == "tool" else ""
    return ""


def _audit_record(
    spec: KernelSpec, active: ActiveRun | None, called: Called, outcome: str, ms: float, sent: int
) -> Record:
    arguments = json.dumps(called.given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    cell = active.cell if active is not None else None
    return Record(
        at=time.time(),
        kind="capability",
        who=spec.owner,
        via="cell",
        tool=_recorded_name(called),
        notebook=spec.name,
        cell=cell.number if cell is not None else None,
        run=cell.run.id if cell is not None and cell.run is not None else None,
        digest=digest(arguments),
        outcome="error" if outcome == "tool" else outcome,
        ms=ms,
        received=content_bytes(called.given),
        sent=sent,
    )
