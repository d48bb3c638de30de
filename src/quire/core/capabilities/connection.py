"""The connection to a capability's backend: opened on first use, reopened with exponential backoff."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from quire.core.capabilities.model import Capability, Offered
from quire.core.errors import ConnectionLost, InvalidRequest, OperationFailed
from quire.core.ports.capabilities import Connection
from quire.tool_descriptions import tools

_STABLE_AFTER_S = 10.0  # a connection that lasted longer resets the backoff
_FIRST_RETRY_DELAY_S = 0.25  # doubled after each failure
_MAX_RETRY_DELAY_S = 60.0
_MAX_REASON_CHARS = 300  # of the last failure
_MAX_RETRIES = 5  # in the background; afterwards the next call tries


class ReconnectingBackend:
    """Reconnects; also the Listener of its connection."""

    def __init__(
        self,
        capability: Capability,
        connect: Callable[[ReconnectingBackend], Awaitable[Connection]],
        on_change: Callable[[ReconnectingBackend], None],
        start_soon: Callable[..., None],
    ) -> None:
        self.capability = capability
        self.log_listeners: set[Callable[[str, str], None]] = set()  # get level and text of log messages
        self._connect = connect
        self._on_change = on_change
        self._start_soon = start_soon
        self._connection: Connection | None = None
        self._lock = anyio.Lock()
        self._last_failure = ""  # as a sentence
        self._failures = 0  # in a row
        self._retry_at = 0.0
        self._connected_at = 0.0
        self._closed = False
        self._connect_scope = anyio.CancelScope()
        self._names_of: Offered | None = None
        self._python_names: dict[str, str] = {}

    @property
    def health(self) -> str:
        """The state of the connection, in words."""
        if self._connection is not None:
            return "connected"
        return (
            f"lost: {' '.join(self._last_failure.split())[:_MAX_REASON_CHARS]}"
            if self._last_failure
            else "not connected yet"
        )

    def python_name(self, tool: str) -> str:
        """The Python name of a tool."""
        if self._names_of is not self.capability.offered:
            self._names_of = self.capability.offered
            self._python_names = tools.python_names((tool.name for tool in self._names_of.tools), tools.RESERVED)
        return self._python_names.get(tool, tool)

    def check_approve(self) -> None:
        """Raises InvalidRequest if approve names an unknown method."""
        known = {*(tool.name for tool in self.capability.offered.tools), *tools.RESERVED, "*"}
        known |= {self.python_name(name) for name in known}
        if unknown := [method for method in self.capability.approve if method not in known]:
            raise InvalidRequest(f"approve names {', '.join(unknown)}, which {self.capability.name} does not have.")

    async def connection(self) -> Connection:
        """The open connection, or a new one. Raises ConnectionLost, also before the backoff has passed."""
        if self._connection is not None:
            return self._connection
        async with self._lock:
            if self._connection is not None:
                return self._connection
            if self._closed:
                raise ConnectionLost(f"{self.capability.name} was uninstalled.")
            wait = self._retry_at - anyio.current_time()
            if wait > 0:
                message = f"{self.capability.name} is not connected; it is tried again in {wait:.1f} s."
                raise ConnectionLost(message, why=self._last_failure)
            return await self._open()

    async def _open(self) -> Connection:
        connection = None
        try:
            with anyio.CancelScope() as self._connect_scope:
                connection = await self._connect(self)
        except OperationFailed as error:
            self._failed(str(error))
            raise ConnectionLost(f"{self.capability.name} cannot be connected to.", why=str(error)) from error
        if connection is None:
            raise ConnectionLost(f"{self.capability.name} was closed while it was being connected.")
        self._connection, self._connected_at, self._last_failure = connection, anyio.current_time(), ""
        self.changed(connection.offered)
        return connection

    async def close(self) -> None:
        self._closed = True
        self._connect_scope.cancel()
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    # Listener

    def changed(self, offered: Offered) -> None:
        if offered != self.capability.offered:
            self.capability = replace(self.capability, offered=offered)
            self._on_change(self)

    def logged(self, level: str, text: str) -> None:
        for listener in list(self.log_listeners):
            listener(level, text)

    def lost(self, why: str) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        self._start_soon(connection.close)
        if anyio.current_time() - self._connected_at > _STABLE_AFTER_S:
            self._failures = 0
        if self._failures:
            self._failed(why)
        else:  # after a first failure the next call tries at once
            self._last_failure, self._failures = why, 1
        self._start_soon(self._restart)

    def _failed(self, why: str) -> None:
        self._last_failure = why
        delay = min(_FIRST_RETRY_DELAY_S * 2 ** min(self._failures, 10), _MAX_RETRY_DELAY_S)
        self._retry_at = anyio.current_time() + delay
        self._failures += 1

    async def _restart(self) -> None:
        for _ in range(_MAX_RETRIES):
            await anyio.sleep_until(self._retry_at)
            if self._closed:
                return
            try:
                await self.connection()
                return
            except OperationFailed:  # `health` reports it
                continue
