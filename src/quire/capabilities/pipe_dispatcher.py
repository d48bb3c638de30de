"""JSON-RPC with a process, one message per line: an SDK Dispatcher without threads and models.

The SDK's session uses it like its own. Answers are not validated here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT, run_notify_intercept
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from quire.capabilities.line_protocol import MAX_LINE_BYTES
from quire.core.errors import ConnectionLost, OperationFailed

_MAX_JUNK_LINES, _MAX_JUNK_LINE_BYTES = 10, 1000  # output between messages that is kept
_ID = re.compile(rb'^\{"jsonrpc": ?"2\.0", ?"id": ?(\d+)|"id": ?(\d+)\}\r?$')


@dataclass(slots=True)
class _PendingRequest:
    answer: asyncio.Future[dict[str, Any]]
    progress: ProgressFnT | None


class PipeDispatcher:
    """Sends and receives messages.

    `probe` is the timeout of the first modern request, which some legacy servers never answer.
    """

    def __init__(self, *, probe: float) -> None:
        self._probe = probe
        self._write: Callable[[bytes], None] = _discard
        self._room: Callable[[], Awaitable[object] | None] = _no_wait
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int | str, _PendingRequest] = {}
        self._lost: ConnectionLost | None = None
        self._ended = asyncio.Event()
        self._notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._junk: deque[bytes] = deque(maxlen=_MAX_JUNK_LINES)

    def start_writing(self, write: Callable[[bytes], None], room: Callable[[], Awaitable[object] | None]) -> None:
        """`write` sends a line; `room` returns what to wait for while the buffer is full, or None."""
        self._write, self._room = write, room

    @property
    def junk(self) -> str:
        """The last lines that were no messages."""
        return b"\n".join(self._junk).decode("utf-8", "replace")

    def end(self, lost: ConnectionLost) -> None:
        """All pending and later requests raise this error."""
        if self._lost is None:
            self._lost = lost
            self._ended.set()
            for waiting in self._waiting.values():
                if not waiting.answer.done():
                    waiting.answer.set_exception(ConnectionLost(str(lost)))

    # Called by the SDK's session

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        self._notify, self._intercept = on_notify, on_notify_intercept
        task_status.started()
        try:
            await self._ended.wait()
        finally:
            self._notify = self._intercept = None
            for task in self._tasks:
                task.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        opts = opts or {}
        number = opts.get("request_id") or next(self._numbers)
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        progress = opts.get("on_progress")
        if progress is not None:
            params = {**(params or {})}
            params["_meta"] = {**(params.get("_meta") or {}), "progressToken": number}
        if params:
            message["params"] = params
        line = _encode(message)
        if (waiting := self._room()) is not None:
            await waiting
        if self._lost is not None:
            raise ConnectionLost(str(self._lost))
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[number] = _PendingRequest(answer, progress)
        timeout = opts.get("timeout")
        if timeout is not None and method == "server/discover":
            timeout = min(timeout, self._probe)
        timer = None if timeout is None else self._loop.call_later(timeout, _time_out, answer, method)
        try:
            self._write(line)
            return await answer
        except (asyncio.CancelledError, TimeoutError) as error:
            if opts.get("cancel_on_abandon", True) and self._lost is None:
                why = {"requestId": number, "reason": "the caller stopped waiting"}
                self._write(_encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": why}))
            if isinstance(error, TimeoutError):
                raise MCPError(REQUEST_TIMEOUT, str(error)) from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[number]

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        if self._lost is None:
            self._write(_encode(message))

    # Called with output of the process

    def receive_line(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            message = None
        match message:
            case {"jsonrpc": "2.0", "method": str(method), "id": int() | str() as number}:
                self._asked(method, number)
            case {"jsonrpc": "2.0", "method": str(method)}:
                params = message.get("params")
                self._noticed(method, params if isinstance(params, dict) else None)
            case {"jsonrpc": "2.0", "id": int() | str() as number}:
                self._answered(number, message)
            case _:
                self._unreadable(line)

    def _answered(self, number: int | str, message: dict[str, Any]) -> None:
        waiting = self._waiting.get(number)
        if waiting is None and isinstance(number, str) and number.isdecimal():
            waiting = self._waiting.get(int(number))  # some servers return the id as text
        if waiting is None or waiting.answer.done():
            return
        match message:
            case {"result": dict(result)}:
                waiting.answer.set_result(result)
            case {"error": {"message": str(text)} as error}:
                code = error.get("code")
                waiting.answer.set_exception(
                    MCPError(code if type(code) is int else INTERNAL_ERROR, text, error.get("data"))
                )
            case _:
                waiting.answer.set_exception(
                    MCPError(INTERNAL_ERROR, "It answered with neither a result nor an error.")
                )

    def _noticed(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/progress" and params is not None:
            self._progressed(params)
            return
        if run_notify_intercept(self._intercept, method, params) or self._notify is None:
            return
        self._spawn(self._notify(_Context(), method, params))  # type: ignore[arg-type]  # unused by the session

    def _progressed(self, params: dict[str, Any]) -> None:
        match params:
            case {"progressToken": int() | str() as token, "progress": int() | float() as progress}:
                waiting = self._waiting.get(token)
                if waiting is not None and waiting.progress is not None:
                    total, message = params.get("total"), params.get("message")
                    self._spawn(
                        waiting.progress(
                            float(progress),
                            float(total) if isinstance(total, int | float) else None,
                            message if isinstance(message, str) else None,
                        )
                    )

    def _asked(self, method: str, number: int | str) -> None:
        """Answer pings; refuse other requests."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        if method == "ping":
            message["result"] = {}
        else:
            message["error"] = {"code": METHOD_NOT_FOUND, "message": f"This client does not offer {method[:100]}."}
        if self._lost is None and self._room() is None:  # not to a process that does not read
            self._write(_encode(message))

    def _unreadable(self, line: bytes) -> None:
        if len(line) < 1024 and (ends := line.split(b"\0")) and len(ends) == 2:
            for found in (_ID.search(ends[0]), _ID.search(ends[1])):
                number = int(found[1] or found[2]) if found else None
                if number in self._waiting and not self._waiting[number].answer.done():
                    size = f"{MAX_LINE_BYTES // 2**20} MB"
                    self._waiting[number].answer.set_exception(
                        OperationFailed(
                            f"The answer is longer than {size}, the longest that is taken. Ask for less at a time."
                        )
                    )
                    return
        self._junk.append(line if len(line) <= _MAX_JUNK_LINE_BYTES else b"(a line of %d bytes)" % len(line))

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a failed callback only loses its message


@dataclass(frozen=True)
class _Context:
    """The context of notifications."""

    request_id: None = None


def _discard(line: bytes) -> None:
    """Before a process is connected."""


def _no_wait() -> None:
    return None


def _time_out(answer: asyncio.Future[dict[str, Any]], method: str) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError(f"{method} was not answered in time."))


def _encode(message: dict[str, Any]) -> bytes:
    try:
        return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise OperationFailed(
            f"The arguments cannot be sent as JSON ({error}). Pass text, numbers, lists and dicts."
        ) from error
