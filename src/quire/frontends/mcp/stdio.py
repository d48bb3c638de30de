"""MCP over this process's stdin and stdout, read and written by the event loop itself.

The SDK hands every line to a thread and back, and every message from task to task; pipes need neither. Where stdin or
stdout is not a pipe or socket (a file, a terminal), and on Windows, whose event loop takes no pipe that it has not made
itself, the SDK's own way is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import Any, Self

import anyio
from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

_LINE = 64 * 2**20  # bytes: the longest message taken, where there is no limit


async def serve(server: FastMCP[Any], log_level: str, most_bytes: int) -> None:
    """Until the client closes stdin. A message of more than `most_bytes` is a bad one; 0 takes very long ones."""
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        await server.run_stdio_async(show_banner=False, log_level=log_level)
        return
    token = set_transport("stdio")
    low = server._mcp_server  # run_stdio_async takes no streams
    try:
        async with server._lifespan_manager(), _streams(most_bytes or _LINE) as (incoming, outgoing):
            await low.run(incoming, outgoing, low.create_initialization_options())
    finally:
        reset_transport(token)


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextlib.asynccontextmanager
async def _streams(longest: int) -> AsyncIterator[tuple[_Incoming, _Outgoing]]:
    """Our own copies of 0 and 1; those numbers now lead nowhere and to stderr, so that nothing strays in."""
    loop = asyncio.get_running_loop()
    stdin, stdout = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: ASYNC230, PTH123 - the null device does not block
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(longest)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdin, "rb", buffering=0)
    )
    outgoing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(stdout, "wb", buffering=0)
    )
    try:
        yield _Incoming(reader), _Outgoing(asyncio.StreamWriter(outgoing, protocol, None, loop))
    finally:
        incoming.close()
        outgoing.close()


class _Stream:
    """What the SDK asks of both; whoever made the pipe closes it."""

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class _Incoming(_Stream):
    """Messages; what is none comes as the error it is."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        try:
            line = await self._reader.readline()
            if not line:
                raise anyio.EndOfStream
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace"), by_name=False))
        except ValueError as error:  # of the parser's, or the line is longer than any message may be
            return error


class _Outgoing(_Stream):
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Whoever gives up while the client does not read leaves nothing behind."""
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise anyio.BrokenResourceError from error
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
