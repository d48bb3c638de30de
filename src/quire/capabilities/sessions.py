"""An MCP session with a backend: negotiation, lists with updates, and requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.metadata import version
from typing import Any, Literal, cast

import mcp_types
from mcp.client._probe import negotiate_auto  # what fastmcp.Client(mode="auto") does
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, Dispatcher, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from quire.capabilities import failure_messages, parsing, web
from quire.core.capabilities.model import Offered
from quire.core.errors import CallTimeout, ConnectionLost, OperationFailed

_LIST_SECONDS = 30.0  # for a new list
_MAX_ENTRIES = 5 * parsing.MAX_TOOLS  # read of one list
_MAX_LIST_CHARS = 64 * 2**20  # of all pages of a list
_LIST_INTERVAL_S = 0.2  # between two lists
_RESUBSCRIBE_DELAYS_S = (1.0, 60.0)  # for a broken stream of changes: first, maximum
_LOG_LEVEL: Literal["info"] = "info"  # of requested log messages

_CLIENT_INFO = mcp_types.Implementation(name="quire", version=version("quire"))

_Negotiation = Callable[[ClientSession], Awaitable[object]]
NEGOTIATIONS: tuple[_Negotiation, ...] = (negotiate_auto, ClientSession.initialize)
"""Modern with fallback; legacy only, for servers that exit on other first messages."""


class Session:
    """Created by `open`; call `negotiate` before requests."""

    def __init__(
        self,
        dispatcher: Dispatcher[Any],
        session: ClientSession,
        changed: asyncio.Event,
        redact: Callable[[Any], Any],
    ) -> None:
        self._dispatcher = dispatcher
        self._session = session
        self._changed = changed
        self._redact = redact
        self._header_arguments: dict[str, dict[tuple[str, ...], str]] = {}  # arguments sent as headers, by tool

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, dispatcher: Dispatcher[Any], logged: Callable[[str, str], None], redact: Callable[[Any], Any]
    ) -> AsyncIterator[Session]:
        """A session before negotiation. `redact` is applied to all answers."""
        changed = asyncio.Event()

        async def log(params: mcp_types.LoggingMessageNotificationParams) -> None:
            logged(str(params.level), _as_text(params.data))

        async def notice(message: IncomingMessage) -> None:
            if isinstance(message, mcp_types.ToolListChangedNotification):
                changed.set()

        async with ClientSession(
            dispatcher=dispatcher,
            client_info=_CLIENT_INFO,
            logging_callback=log,
            message_handler=notice,
            log_level=_LOG_LEVEL,
        ) as session:
            yield cls(dispatcher, session, changed, redact)

    async def negotiate(self, how: _Negotiation) -> None:
        await how(self._session)

    @property
    def protocol(self) -> str:
        return self._session.protocol_version or ""

    @property
    def is_modern(self) -> bool:
        return self.protocol in MODERN_PROTOCOL_VERSIONS

    async def request(
        self, method: str, params: dict[str, Any], *, timeout: float, progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The answer, not validated. Raises ConnectionLost, CallTimeout or OperationFailed."""
        opts: CallOptions = {}
        if progress is not None:
            opts["on_progress"] = progress
        data: dict[str, Any] = {"method": method, "params": params}
        self._session._stamp(data, opts)  # adds client data by protocol version; send_request validates too much
        if method == "tools/call" and (in_headers := self._header_arguments.get(params["name"])):
            opts.setdefault("headers", {}).update(mcp_param_headers(in_headers, params["arguments"]))
        try:
            async with asyncio.timeout(timeout):
                answer = await self._dispatcher.send_raw_request(method, data["params"], opts)
            return cast(dict[str, Any], self._redact(answer))
        except TimeoutError:
            raise CallTimeout(f"The server did not answer within {timeout:g} s; the call was cancelled.") from None
        except MCPError as error:
            if not web.is_lost(error.code, error.message):
                raise OperationFailed(failure_messages.as_sentence(self._redact(error.message))) from None
            self._changed.set()  # `follow` checks whether the server is gone
            raise ConnectionLost(
                f"The connection ended before the server answered: {failure_messages.as_sentence(error.message)}"
            ) from None

    async def list_all(self, method: str, key: str, *, timeout: float) -> list[Any]:
        """The entries of all pages."""
        found: list[Any] = []
        size = 0
        cursor: str | None = None
        seen: set[str] = set()
        async with _time_limit(timeout):
            while True:
                answer = await self.request(method, {"cursor": cursor} if cursor else {}, timeout=timeout)
                page = answer.get(key)
                found += page if isinstance(page, list) else []
                size += len(json.dumps(answer))
                cursor = answer.get("nextCursor")
                if len(found) >= _MAX_ENTRIES or size > _MAX_LIST_CHARS:
                    return found
                if not isinstance(cursor, str) or not cursor or cursor in seen:
                    return found
                seen.add(cursor)

    async def offered(self, *, timeout: float) -> Offered:
        can = self._session.server_capabilities
        listed: list[Any] = []
        if can is None or can.tools is not None:
            listed = await self.list_all("tools/list", "tools", timeout=timeout)
        if self.is_modern:
            listed = list(self._collect_header_arguments(listed))
        info = self._session.server_info
        return parsing.parse_offered(
            listed,
            about=self._redact(self._session.instructions),
            server=self._redact(f"{info.name} {info.version}".strip() if info else ""),
            resources=can is not None and can.resources is not None,
            prompts=can is not None and can.prompts is not None,
        )

    def _collect_header_arguments(self, listed: list[Any]) -> Iterator[Any]:
        """Drop tools with invalid x-mcp-header annotations; note arguments that are also sent as HTTP headers."""
        self._header_arguments = {}
        for tool in listed:
            schema = tool.get("inputSchema") if isinstance(tool, dict) else None
            if isinstance(schema, dict):
                if find_invalid_x_mcp_header(schema) is not None:
                    continue
                if headers := x_mcp_header_map(schema):
                    self._header_arguments[str(tool.get("name"))] = headers
            yield tool

    async def follow(self, offered: Offered, changed: Callable[[Offered], None]) -> None:
        """Report changes of what it offers. Runs until ConnectionLost is raised."""
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    now = await self.offered(timeout=_LIST_SECONDS)
                except ConnectionLost:
                    raise
                except OperationFailed:
                    continue  # keep the last known list
                if now != offered:
                    offered = now
                    changed(now)
                await asyncio.sleep(_LIST_INTERVAL_S)  # some servers notify after every list
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        can = self._session.server_capabilities
        if not self.is_modern:
            if can is not None and can.logging is not None:
                with contextlib.suppress(OperationFailed):
                    await self.request("logging/setLevel", {"level": _LOG_LEVEL}, timeout=_LIST_SECONDS)
            return
        loop = asyncio.get_running_loop()
        pause, longest = _RESUBSCRIBE_DELAYS_S
        while can is not None and can.tools is not None and can.tools.list_changed:
            began = loop.time()
            try:
                async with listen(self._session, tools_list_changed=True) as events:
                    self._changed.set()  # it may have changed before
                    async for _ in events:
                        pass  # the message handler of the session gets them
            except SubscriptionLost:
                self._changed.set()
            except MCPError as error:
                if not web.is_lost(error.code, error.message):
                    return  # not supported
                self._changed.set()
            except OperationFailed:
                return
            pause = _RESUBSCRIBE_DELAYS_S[0] if loop.time() - began > longest else min(2 * pause, longest)
            await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def _time_limit(timeout: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise CallTimeout(f"The server did not answer within {timeout:g} s; the call was cancelled.") from None


def _as_text(data: Any) -> str:
    """A log message, which may be any JSON; fastmcp servers wrap the text."""
    if isinstance(data, dict) and isinstance(data.get("msg"), str) and not data.get("extra"):
        data = data["msg"]
    if isinstance(data, str):
        return data
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        return json.dumps(data, ensure_ascii=False)
    return repr(data)
