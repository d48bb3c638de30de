"""A capability's connection: made when it is first needed, made anew with growing pauses when it is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from quire.core.capabilities.model import Capability, Offered
from quire.core.errors import ConnectionLost, InvalidRequest, OperationFailed
from quire.core.ports.capabilities import Connection
from quire.tool_descriptions import tools

_STEADY = 10.0  # seconds after which a connection that is lost was a good one
_FIRST = 0.25  # seconds until the second try; each pause is twice the one before
_LONGEST = 60.0
_SHOWN = 300  # characters of what is wrong
_TRIES = 5  # by itself; after those the next call tries


class Link:
    """A Listener to its own connection."""

    def __init__(
        self,
        capability: Capability,
        connect: Callable[[Link], Awaitable[Connection]],
        offers: Callable[[Link], None],
        soon: Callable[..., None],
    ) -> None:
        self.capability = capability
        self.hearers: set[Callable[[str, str], None]] = set()  # of what the backend logs
        self._connect = connect
        self._offers = offers
        self._soon = soon
        self._connection: Connection | None = None
        self._turn = anyio.Lock()
        self._why = ""  # the last failure
        self._failures = 0  # in a row
        self._not_before = 0.0
        self._since = 0.0
        self._closed = False
        self._trying = anyio.CancelScope()
        self._named: Offered | None = None
        self._names: dict[str, str] = {}

    @property
    def health(self) -> str:
        """For people and agents: connected, not connected yet, or what is wrong."""
        if self._connection is not None:
            return "connected"
        return f"lost: {' '.join(self._why.split())[:_SHOWN]}" if self._why else "not connected yet"

    def python_name(self, tool: str) -> str:
        """What code calls it by."""
        if self._named is not self.capability.offered:
            self._named = self.capability.offered
            self._names = tools.identifiers((each.name for each in self._named.tools), tools.RESERVED)
        return self._names.get(tool, tool)

    def check_approve(self) -> None:
        """A rule for a method that there is not would never count."""
        known = {*(tool.name for tool in self.capability.offered.tools), *tools.RESERVED, "*"}
        known |= {self.python_name(name) for name in known}
        if unknown := [method for method in self.capability.approve if method not in known]:
            raise InvalidRequest(f"approve names {', '.join(unknown)}, which {self.capability.name} does not have.")

    async def connection(self) -> Connection:
        """The connection, made where there is none. Raises ConnectionLost where it is too soon to try again."""
        if self._connection is not None:
            return self._connection
        async with self._turn:
            if self._connection is not None:
                return self._connection
            if self._closed:
                raise ConnectionLost(f"{self.capability.name} was uninstalled.")
            wait = self._not_before - anyio.current_time()
            if wait > 0:
                told = f"{self.capability.name} is not connected; it is tried again in {wait:.1f} s."
                raise ConnectionLost(told, why=self._why)
            return await self._try()

    async def _try(self) -> Connection:
        connection = None
        try:
            with anyio.CancelScope() as self._trying:
                connection = await self._connect(self)
        except OperationFailed as error:
            self._failed(str(error))
            raise ConnectionLost(f"{self.capability.name} cannot be connected to.", why=str(error)) from error
        if connection is None:
            raise ConnectionLost(f"{self.capability.name} was closed while it was being connected.")
        self._connection, self._since, self._why = connection, anyio.current_time(), ""
        self.changed(connection.offered)
        return connection

    async def close(self) -> None:
        self._closed = True
        self._trying.cancel()
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    # What the backend says unasked

    def changed(self, offered: Offered) -> None:
        if offered != self.capability.offered:
            self.capability = replace(self.capability, offered=offered)
            self._offers(self)

    def logged(self, level: str, text: str) -> None:
        for hear in list(self.hearers):
            hear(level, text)

    def lost(self, why: str) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        self._soon(connection.close)
        if anyio.current_time() - self._since > _STEADY:
            self._failures = 0
        if self._failures:
            self._failed(why)
        else:  # the next call need not wait
            self._why, self._failures = why, 1
        self._soon(self._restart)

    def _failed(self, why: str) -> None:
        self._why = why
        self._not_before = anyio.current_time() + min(_FIRST * 2 ** min(self._failures, 10), _LONGEST)
        self._failures += 1

    async def _restart(self) -> None:
        for _ in range(_TRIES):
            await anyio.sleep_until(self._not_before)
            if self._closed:
                return
            try:
                await self.connection()
                return
            except OperationFailed:  # health says it
                continue
