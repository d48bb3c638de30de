"""MCP over this process's stdin and stdout, read and written by the event loop itself.

The SDK hands every line to a thread and back, three times a call; pipes need no threads. Where stdin or
stdout is not a pipe or socket (a file, a terminal), the SDK's own way is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from mcp.server.stdio import stdio_server

_LINE = 64 * 2**20  # bytes: the longest message taken, where there is no limit


async def serve(server: FastMCP[Any], log_level: str, most_bytes: int) -> None:
    """Until the client closes stdin. A message of more than `most_bytes` is a bad one; 0 takes very long ones."""
    if not (_is_pipe(0) and _is_pipe(1)):
        await server.run_stdio_async(show_banner=False, log_level=log_level)
        return
    token = set_transport("stdio")
    low = server._mcp_server  # run_stdio_async takes no streams
    try:
        async with server._lifespan_manager(), _streams(most_bytes or _LINE) as (lines, pipe):
            async with stdio_server(cast(Any, lines), cast(Any, pipe)) as (read, write):
                await low.run(read, write, low.create_initialization_options())
    finally:
        reset_transport(token)


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextlib.asynccontextmanager
async def _streams(longest: int) -> AsyncIterator[tuple[_Lines, _Pipe]]:
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
        yield _Lines(reader), _Pipe(asyncio.StreamWriter(outgoing, protocol, None, loop))
    finally:
        incoming.close()
        outgoing.close()


class _Lines:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # longer than any message may be: answered as the bad message it is
                line = b"{\n"
            if not line:
                return
            yield line.decode("utf-8", "replace")


class _Pipe:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode("utf-8"))

    async def flush(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise anyio.ClosedResourceError from error
